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
