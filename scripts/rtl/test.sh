#!/usr/bin/env bash
# test.sh [--long]: the checks of rtl/: style, benches, proofs, lockstep with the model; and that they find mistakes.
#
# Fetches the tools the first time. --long: all mistakes of rtl/mutants.py, two hundred times the cycles, benches and
# proofs that are long, throughput and area.
# As many checks run at a time as there are processors, and as many mistakes. Prints a line per check: "ok" or "FAILED".
# Exit codes: 0 all passed, 1 something failed, 77 nothing was run, because the tools cannot be had here.
set -euo pipefail
cd "$(dirname "$0")/../.."

scripts/rtl/setup.sh
# shellcheck source=tools.sh
source scripts/rtl/tools.sh
readonly PYTHON=$TOOLS/python/bin/python QUEUE=$RTL_TARGET/queue
mkdir -p "$RTL_TARGET"

long=false
[ "${1:-}" != --long ] || long=true
# One mistake for each kind of check: that it finds any.
mutants=("a result is kept over" "a walk more than" "a queue is full" "a frame beyond the memory is taken" "390 walks" "an empty table stays linked")
cycles=1000000
if $long; then
    mutants=()
    # Of each of the five netlists: 10^9 in all.
    cycles=200000000
fi

# locked COMMAND...: none of the workers does another one meanwhile.
locked() { flock "$QUEUE.lock" "$@"; }

# check NAME COMMAND...: what the command prints is shown if it fails, and its lines of the kinds that a
# reader of a green run wants; then how long it took, and how much of that processors.
check() {
    local name=$1 log=$RTL_TARGET/check-${1//[^a-zA-Z0-9]/-}.log shown result=ok code=0
    local TIMEFORMAT="%0R %0U %0S" real user system
    shift
    { time "$@" >"$log" 2>&1; } 2>"$log.time" || code=1
    if [ "$code" -eq 0 ]; then
        shown=$(grep -E '^(holds|found|\||[a-z]+ seed)' "$log" | sed 's/^/        /' || true)
    else
        shown=$(cat "$log")
        result=FAILED
    fi
    read -r real user system <"$log.time"
    {
        [ -z "$shown" ] || echo "$shown"
        printf '%-7s %s (%s s, %s s of processor time)\n' "$result" "$name" "$real" "$((user + system))"
    } | locked cat
    return "$code"
}

style() { check "style, and the core of FuseSoC" scripts/rtl/lint.sh; }

pages() { check "pages say what the table of areas says" "$PYTHON" scripts/rtl/pages.py; }

waves() { check "waves are as drawn" scripts/rtl/waves.sh --check; }

throughput() { check "throughput is as written" scripts/rtl/report.sh; }

benches() {
    local code=0
    local long_ones=(--without-attributes .long)
    ! $long || long_ones=()
    check "benches" "$PYTHON" rtl/test/run.py --output-path "$RTL_TARGET/vunit" -p 1 "${long_ones[@]}" || code=1
    check "a simulation replayed on its netlist" scripts/rtl/replay.sh rtl "$RTL_TARGET/vunit" "$RTL_TARGET/replay" || code=1
    return "$code"
}

netlists_in_lockstep() {
    scripts/rtl/netlists.sh rtl "$RTL_TARGET/netlists" &&
        FARSIDE_RTL_CYCLES=$cycles scripts/rtl/lockstep.sh "$RTL_TARGET/netlists"
}

lockstep() { check "model and VHDL in lockstep, $cycles cycles" netlists_in_lockstep; }

mistakes() { check "mistakes are found" "$PYTHON" scripts/rtl/mutants.py "${mutants[@]}"; }

# proofs ENTITY: its bounded proofs.
proofs() {
    local tasks
    mapfile -t tasks < <(awk -v entity="$1" -v long="$long" \
        '$2 == entity && (long == "true" || $1 !~ /_(long|covers)$/) { print $1 }' rtl/proof/tasks)
    check "proofs of $1" scripts/rtl/prove.sh rtl "$RTL_TARGET/proof/$1" "${tasks[@]}"
}

# Each line of the table is one of docs/rtl/area.md.
area_is_as_written() {
    scripts/rtl/area.sh && ! grep -vxFf docs/rtl/area.md "$RTL_TARGET/area/table.md"
}

area() { check "area is as written" area_is_as_written; }

# The next of the checks that nobody has taken.
next() {
    locked sh -c 'head -n 1 "$1" && sed -i 1d "$1"' - "$QUEUE"
}

# Checks, one after the other, until there are no more.
worker() {
    local failed=0 words
    while read -ra words < <(next); do
        "${words[@]}" || failed=1
    done
    return "$failed"
}

# Those that take longest first, so that no worker has one left when the others are through. Entities are in this
# order in their table.
{
    ! $long || printf '%s\n' mistakes throughput area
    echo benches
    $long || echo mistakes
    echo lockstep
    awk '!/^#/ { print "proofs", $1 }' rtl/proof/sizes
    printf '%s\n' style waves pages
} >"$QUEUE"

failed=0 workers=()
for ((i = 0; i < $(nproc); i++)); do
    worker &
    workers+=($!)
done
for worker in "${workers[@]}"; do
    wait "$worker" || failed=1
done
[ ! -s "$QUEUE" ] || { say "not run: $(paste -sd, "$QUEUE")" && failed=1; }
exit "$failed"
