#!/usr/bin/env bash
# replay.sh SOURCES OUT: a bench's ports in GHDL's simulation of the translator, replayed on the netlist that GHDL
# writes and Verilator compiles: every output of every cycle is the same.
#
# SOURCES has the entities. Exit codes: 0 equal, 1 not, with the first difference.
set -euo pipefail
sources=$(realpath "$1") out=$(realpath -m "$2")
cd "$(dirname "$0")/../.."
# shellcheck source=tools.sh
source scripts/rtl/tools.sh
readonly TEST="*tb_translator.entries=5,slots=7,*random requests, changes*"
# As the bench and run.py have them.
readonly GENERICS=(-gAddrBits_g=32 -gPhysBits_g=20 -gPageBits_g=10 -gWindowBits_g=6 -gRunBits_g=3 -gTagBits_g=6
    -gEntries_g=5 -gSlots_g=7 -gDepth_g=6)

rm -rf "$out"
mkdir -p "$out/netlist"
"$TOOLS/python/bin/python" rtl/test/run.py --sources "$sources" --output-path "$out/vunit" -p 1 "$TEST" >"$out/bench.log" ||
    { cat "$out/bench.log" && exit 1; }
program=$PWD/rtl/replay/translator.cpp
cd "$out/netlist"
analyse "$sources" translator
ghdl --synth --std=08 --out=verilog "${GENERICS[@]}" translator >translator.v 2>synth.log || { cat synth.log && exit 1; }
verilator --cc --exe --build -O3 -Wno-fatal -Wno-lint -CFLAGS -O1 --prefix Vtranslator -o replay translator.v "$program" \
    >verilator.log 2>&1 || { cat verilator.log && exit 1; }
trace=$(find "$out/vunit" -name translator.trace)
obj_dir/replay "$trace"
# One output of one cycle is another: that must be seen.
awk 'NR == 1000 { $19 = 1 - $19 } 1' "$trace" >changed.trace
! obj_dir/replay changed.trace || { echo "a trace that was changed is equal too" && exit 1; }
