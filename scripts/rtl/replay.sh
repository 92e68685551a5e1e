#!/usr/bin/env bash
# replay.sh SOURCES BENCHES OUT: the translator's ports in GHDL's simulation of a bench, replayed on the netlist that GHDL
# writes and Verilator compiles: every output of every cycle is the same.
#
# SOURCES has the entities, BENCHES is where rtl/test/run.py has run theirs (--output-path).
# Exit codes: 0 equal, 1 not, with the first difference.
set -euo pipefail
sources=$(realpath "$1") benches=$(realpath -m "$2") out=$(realpath -m "$3")
cd "$(dirname "$0")/../.."
# shellcheck source=tools.sh
source scripts/rtl/tools.sh
# As the bench and run.py have them.
readonly GENERICS=(-gAddrBits_g=32 -gPhysBits_g=20 -gPageBits_g=10 -gWindowBits_g=6 -gRunBits_g=3 -gTagBits_g=6
    -gEntries_g=5 -gSlots_g=7 -gDepth_g=6)

# The one that is of these sizes.
mapfile -t traces < <(find "$benches/test_output" -name translator.trace)
[ "${#traces[@]}" -eq 1 ] || { say "$benches has ${#traces[@]} traces of the translator, not one: run rtl/test/run.py" && exit 1; }
trace=${traces[0]}

rm -rf "$out"
mkdir -p "$out"
program=$PWD/rtl/replay/translator.cpp
cd "$out"
analyse "$sources" translator
ghdl --synth --std=08 --out=verilog "${GENERICS[@]}" translator >translator.v 2>synth.log || { cat synth.log && exit 1; }
verilate translator.v Vtranslator "$program" replay -pthread >verilator.log 2>&1 || { cat verilator.log && exit 1; }
./replay "$trace"
# One output of one cycle is another: that must be seen.
awk 'NR == 1000 { $19 = 1 - $19 } 1' "$trace" >changed.trace
! ./replay changed.trace || { echo "a trace that was changed is equal too" && exit 1; }
