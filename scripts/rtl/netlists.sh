#!/usr/bin/env bash
# netlists.sh SOURCES OUT: the netlists that crates/card/tests/rtl.rs loads, as libraries OUT/NAME.so.
#
# SOURCES has the entities, in the folder rtl/ or a copy of it. What is there already from the same
# sources and tools is not made again.
set -euo pipefail
sources=$(realpath "$1") out=$(realpath -m "$2")
cd "$(dirname "$0")/../.."
# shellcheck source=tools.sh
source scripts/rtl/tools.sh

# name, then the generics of window_mmu: the same as in tests/rtl.rs
readonly NETLISTS="
default
small AddrBits_g=32 PhysBits_g=20 RootBits_g=2 LeafBits_g=3 TagBits_g=3 Depth_g=3 Walks_g=2
one AddrBits_g=48 PhysBits_g=36 PageBits_g=18 RootBits_g=3 LeafBits_g=4 TagBits_g=1 Depth_g=1 Walks_g=1
"

made_of=$(cat "$sources"/*.vhd rtl/lockstep/*.cpp "$0" "$TOOLS/versions" | sha256sum)
[ "$(cat "$out/made-of" 2>/dev/null)" != "$made_of" ] || exit 0
rm -rf "$out"
mkdir -p "$out"

# netlist NAME GENERIC...
netlist() {
    local name=$1 work=$out/$1 generics=()
    shift
    [ $# -eq 0 ] || generics=("${@/#/-g}")
    mkdir -p "$work"
    cd "$work"
    ghdl -a --std=08 "$sources"/window_pkg.vhd "$sources"/fifo.vhd "$sources"/translator.vhd \
        "$sources"/walker.vhd "$sources"/window_mmu.vhd
    ghdl --synth --std=08 --out=verilog "${generics[@]}" window_mmu >window_mmu.v 2>synth.log ||
        { cat synth.log >&2 && return 1; }
    verilator --cc -O3 -Wno-fatal -Wno-lint -CFLAGS "-fPIC -O1" --prefix Vwindow_mmu window_mmu.v >verilator.log 2>&1 ||
        { cat verilator.log >&2 && return 1; }
    make -s -C obj_dir -f Vwindow_mmu.mk Vwindow_mmu__ALL.a verilated.o verilated_threads.o >make.log 2>&1 ||
        { cat make.log >&2 && return 1; }
    g++ -std=gnu++17 -O1 -fPIC -shared -I obj_dir -I "$VERILATOR_ROOT/include" -I "$VERILATOR_ROOT/include/vltstd" \
        "$OLDPWD/rtl/lockstep/window_mmu.cpp" obj_dir/Vwindow_mmu__ALL.a obj_dir/verilated.o obj_dir/verilated_threads.o -o "$out/$name.so"
    cd "$OLDPWD"
}

while read -r -a words; do
    [ ${#words[@]} -eq 0 ] || netlist "${words[@]}"
done <<<"$NETLISTS"
echo "$made_of" >"$out/made-of"
