# shellcheck shell=bash
# Where the tools of rtl/ are, for the scripts that run them. Sourced, not run.

# FARSIDE_RTL_TOOLS names another folder for the tools.
RTL_TARGET=$(realpath -m "${CARGO_TARGET_DIR:-target}")/rtl
TOOLS=$(realpath -m "${FARSIDE_RTL_TOOLS:-$RTL_TARGET/tools}")
DRAWING=$RTL_TARGET/drawing
readonly RTL_TARGET TOOLS DRAWING
export RTL_TARGET TOOLS

readonly NOT_RUN=77

say() { echo "rtl: $*" >&2; }
not_run() {
    say "NOT RUN: $*"
    exit "$NOT_RUN"
}

export PATH="$TOOLS/bin:$TOOLS/python/bin:$TOOLS/verilator/usr/bin:$PATH"
export VERILATOR_ROOT="$TOOLS/verilator/usr/share/verilator"
export VUNIT_SIMULATOR=ghdl
export YOWASP_CACHE_DIR="$TOOLS/cache"

# analyse SOURCES ENTITY...: reads what these entities are made of, for GHDL in the current folder.
analyse() {
    local sources=$1 entity
    shift
    ghdl -i --std=08 "$sources"/*.vhd
    for entity in "$@"; do
        ghdl -m --std=08 "$entity"
    done
}

# verilate NETLIST PREFIX PROGRAM OUT [FLAG...]: what Verilator makes of a netlist, in the current folder, and the program
# that steps it, linked with these flags.
verilate() {
    local netlist=$1 prefix=$2 program=$3 out=$4 file objects=(verilated.o verilated_threads.o)
    local common
    common=$RTL_TARGET/verilated-$(sha256sum <"$TOOLS/versions" | cut -c 1-16)
    shift 4
    # No file is split: with 0 each constant would get its own.
    verilator --cc -O3 --output-split 1000000000 -Wno-fatal -Wno-lint -CFLAGS -fPIC --prefix "$prefix" "$netlist" || return
    # Verilator's own objects, which are the same for every netlist: compiled once.
    if [ ! -d "$common" ]; then
        make -s -C obj_dir -f "$prefix.mk" OPT_GLOBAL=-O1 "${objects[@]}" || return
        # Whoever was first, if two were at it.
        mkdir "$common.$$" && (cd obj_dir && mv "${objects[@]}" "$common.$$") || return
        mv -T "$common.$$" "$common" 2>/dev/null || rm -r "$common.$$"
    fi
    # Two units, as most of what a compiler does for more of them is to read the same headers: what runs in each cycle,
    # with the program, and what runs once.
    for file in obj_dir/"$prefix"*.cpp; do
        case $file in
            *__Slow.cpp | *__Syms.cpp | *__ConstPool_*.cpp) echo "#include \"$PWD/$file\"" >&4 ;;
            *) echo "#include \"$PWD/$file\"" >&3 ;;
        esac
    done 3>each_cycle.cpp 4>once.cpp
    echo "#include \"$program\"" >>each_cycle.cpp
    local compile=(g++ -std=gnu++17 -fPIC -I obj_dir -I "$VERILATOR_ROOT/include" -I "$VERILATOR_ROOT/include/vltstd")
    "${compile[@]}" -O0 -c once.cpp -o once.o &&
        "${compile[@]}" -O1 each_cycle.cpp once.o "${objects[@]/#/$common/}" -o "$out" "$@"
}
