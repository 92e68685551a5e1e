#!/usr/bin/env bash
# test.sh [--long]: the checks of rtl/: style, benches, proofs, lockstep with the model, area; and that they
# find mistakes.
#
# Fetches the tools the first time. --long: all mistakes of rtl/mutants.py, a hundred times the cycles, and
# throughput.
# Prints a line per check: "ok" or "FAILED".
# Exit codes: 0 all passed, 1 something failed, 77 nothing was run, because the tools cannot be had here.
set -euo pipefail
cd "$(dirname "$0")/../.."

scripts/rtl/setup.sh
# shellcheck source=tools.sh
source scripts/rtl/tools.sh
readonly PYTHON=$TOOLS/python/bin/python

long=false
[ "${1:-}" != --long ] || long=true
# One mistake for each kind of check: that it finds any.
mutants=("a result is kept over" "a walk more than" "a queue is full" "a frame beyond the memory is taken" "390 walks" "an empty table stays linked")
cycles=1000000
if $long; then
    mutants=()
    cycles=100000000
fi

failed=0
# check NAME COMMAND...: what the command prints is shown if it fails, and its lines of the kinds that a
# reader of a green run wants.
check() {
    local name=$1 start=$SECONDS log=$RTL_TARGET/check-${1%% *}.log
    shift
    if "$@" >"$log" 2>&1; then
        grep -E '^(holds|found|\||[a-z]+ seed)' "$log" | sed 's/^/        /' || true
        echo "ok      $name ($((SECONDS - start)) s)"
    else
        cat "$log"
        echo "FAILED  $name ($((SECONDS - start)) s)"
        failed=1
    fi
}

netlists_in_lockstep() {
    scripts/rtl/netlists.sh rtl "$RTL_TARGET/netlists" &&
        FARSIDE_RTL_CYCLES=$cycles scripts/rtl/lockstep.sh "$RTL_TARGET/netlists"
}

# Each line of the table is one of docs/rtl/area.md.
area_is_as_written() {
    if $long; then
        scripts/rtl/area.sh --all
    else
        scripts/rtl/area.sh
    fi && ! grep -vxFf docs/rtl/area.md "$RTL_TARGET/area/table.md"
}

# What simulates, and what proves and counts: each by one processor, beside the other.
simulated() {
    check "style, and the core of FuseSoC" scripts/rtl/lint.sh
    check "benches" "$PYTHON" rtl/test/run.py --output-path "$RTL_TARGET/vunit" -p 1
    check "model and VHDL in lockstep, $cycles cycles" netlists_in_lockstep
    check "a simulation replayed on its netlist" scripts/rtl/replay.sh rtl "$RTL_TARGET/replay"
    check "mistakes are found" "$PYTHON" scripts/rtl/mutants.py "${mutants[@]}"
    check "waves are as drawn" scripts/rtl/waves.sh --check
    ! $long || check "throughput is as written" scripts/rtl/report.sh
    return "$failed"
}

proved() {
    check "bounded proofs" scripts/rtl/prove.sh rtl "$RTL_TARGET/proof"
    ! $long || check "longer proofs" scripts/rtl/prove.sh rtl "$RTL_TARGET/proof-long" translator_long translator_bound_long \
        table_store_long flexible_tlb_long read_channel_bound_long
    ! $long || check "proofs are not empty" scripts/rtl/prove.sh rtl "$RTL_TARGET/proof-covers" \
        translator_covers walker_covers frame_store_covers l2_tlb_covers flexible_tlb_covers
    check "area is as written" area_is_as_written
    return "$failed"
}

proved >"$RTL_TARGET/proved.log" 2>&1 &
proving=$!
simulated || failed=1
wait "$proving" || failed=1
cat "$RTL_TARGET/proved.log"
exit "$failed"
