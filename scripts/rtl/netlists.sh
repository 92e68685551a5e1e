#!/usr/bin/env bash
# netlists.sh SOURCES OUT [report | chapter6 | NAME]: the netlists that crates/card/tests/rtl.rs loads, as libraries
# OUT/NAME.so: those of other sizes that it runs in lockstep, those whose throughput it reports, those of the
# figures of the thesis's chapter 6, or one of the first.
#
# SOURCES has the entities, in the folder rtl/ or a copy of it. What is there already from the same
# sources and tools is not made again.
set -euo pipefail
sources=$(realpath "$1") out=$(realpath -m "$2")
cd "$(dirname "$0")/../.."
# shellcheck source=tools.sh
source scripts/rtl/tools.sh

# name, then the generics of window_mmu, of mmu of mmu_top: the same as in tests/rtl.rs
readonly LOCKSTEP="
default
small AddrBits_g=32 PhysBits_g=20 RootBits_g=2 LeafBits_g=3 TagBits_g=3 Entries_g=3 Depth_g=3 Ways_g=0 DataBits_g=128 Walks_g=2 Lines_g=3 AheadFrom_g=1
one AddrBits_g=36 PhysBits_g=36 PageBits_g=18 RootBits_g=3 LeafBits_g=4 TagBits_g=1 Entries_g=1 Depth_g=1 SetBits_g=1 Ways_g=1 EpochBits_g=1 DataBits_g=64 Walks_g=1 Lines_g=1 AheadFrom_g=0
mmu AddrBits_g=40 PhysBits_g=24 RootBits_g=2 LeafBits_g=3 IdBits_g=3 Entries_g=3 Slots_g=4 Bursts_g=6 SetBits_g=1 Ways_g=2 EpochBits_g=4 Flexible_g=2 RunBits_g=4 DataBits_g=128 Lines_g=3 AheadFrom_g=1 SpaceBits_g=20 HeldBits_g=1
odd AddrBits_g=40 PhysBits_g=30 PageBits_g=14 RootBits_g=3 LeafBits_g=4 TagBits_g=4 Entries_g=5 Depth_g=7 SetBits_g=2 Ways_g=3 EpochBits_g=3 DataBits_g=256 Walks_g=7 Lines_g=5 AheadFrom_g=2
"

readonly REPORT="
walks21 Entries_g=1 Depth_g=21 Walks_g=21 Lines_g=21
walks32 Entries_g=1
walks64 Entries_g=1 Depth_g=64 Walks_g=64 Lines_g=64
noahead Entries_g=1 AheadFrom_g=8
depth1 Entries_g=1 Depth_g=1
noahead1 Entries_g=1 Depth_g=1 AheadFrom_g=8
narrow1 Entries_g=1 Depth_g=1 DataBits_g=64
pages4m Entries_g=1 PageBits_g=22
entries32 Entries_g=32 Depth_g=21 Walks_g=21 Lines_g=21
"

# As tests/rig_rtl/chapter6.rs names them. Frames have 17 bits there, and there is no L2 TLB, as in the thesis.
chapter6() {
    local size walks
    for size in 1 2 4 8 16 32; do
        echo "entries$size Ways_g=0 Entries_g=$size PageBits_g=26 PhysBits_g=43 Depth_g=1 Walks_g=1"
    done
    for size in 12 14 16 18 20 22 24; do
        echo "pages${size}depth1 Ways_g=0 Entries_g=1 PageBits_g=$size PhysBits_g=43 Depth_g=1 Walks_g=1"
        echo "pages${size}depth64 Ways_g=0 Entries_g=1 PageBits_g=$size PhysBits_g=43 Depth_g=64 Walks_g=64 Lines_g=64"
    done
    for walks in 1 2 4 8 16 21 32 64; do
        for size in 12 26; do
            echo "walks${walks}pages${size} Ways_g=0 Entries_g=1 PageBits_g=$size PhysBits_g=43 Depth_g=$walks Walks_g=$walks Lines_g=$walks"
        done
    done
}

case ${3:-} in
    report) netlists=$REPORT ;;
    chapter6) netlists=$(chapter6) ;;
    "") netlists=$LOCKSTEP ;;
    *) netlists=$(grep "^$3\b" <<<"$LOCKSTEP") || { say "there is no netlist $3" && exit 2; } ;;
esac
made_of=$(cat "$sources"/*.vhd rtl/lockstep/*.cpp "$0" scripts/rtl/tools.sh "$TOOLS/versions" <(echo "$netlists") | sha256sum)
[ "$(cat "$out/made-of" 2>/dev/null)" != "$made_of" ] || exit 0
rm -rf "$out"
mkdir -p "$out"

# netlist NAME GENERIC...
netlist() {
    local name=$1 work=$out/$1 entity=window_mmu generics=()
    [ "$name" != mmu ] || entity=mmu_top
    shift
    [ $# -eq 0 ] || generics=("${@/#/-g}")
    mkdir -p "$work"
    cd "$work"
    analyse "$sources" "$entity"
    ghdl --synth --std=08 --out=verilog "${generics[@]}" "$entity" >"$entity.v" 2>synth.log ||
        { cat synth.log >&2 && return 1; }
    verilate "$entity.v" "V$entity" "$OLDPWD/rtl/lockstep/$entity.cpp" "$out/$name.so" -shared >verilator.log 2>&1 ||
        { cat verilator.log >&2 && return 1; }
    cd "$OLDPWD"
}

while read -r -a words; do
    [ ${#words[@]} -eq 0 ] || netlist "${words[@]}"
done <<<"$netlists"
echo "$made_of" >"$out/made-of"
