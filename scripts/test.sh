#!/usr/bin/env bash
# Every check of the repository, one after the other; `make test` and CI run it.
#
# Each crate's tests have a budget of seconds, 600 in all, building excluded. A crate past its budget is
# a warning, because machines are shared; past three times its budget it is stopped and fails.
# A step that fails does not keep the others from running; the summary and the exit code tell.
set -uo pipefail
cd "$(dirname "$0")/.."

# crate and its budget in seconds. Ten minutes in all: a new crate takes from the others.
readonly BUDGETS="
farside-types 10
farside-svm 20
farside-card 30
farside-sim 60
farside-live 60
farside 120
farside-tests 300
"
readonly FAIL_AT=3

failed=0
child=
summary=()

# Ctrl-C reaches the tests, which are in a process group of their own.
trap '[ -n "$child" ] && kill "$child" 2>/dev/null; exit 130' INT TERM

# Runs a command with no more than $1 seconds; no limit if that is 0.
bounded() {
    local limit=$1
    shift
    timeout --kill-after=10 "$limit" "$@" </dev/null &
    child=$!
    wait "$child"
    local code=$?
    child=
    return "$code"
}

# note RESULT NAME SECONDS BUDGET
note() { summary+=("$(printf '%-8s %-34s %5s s  %s' "$1" "$2" "$3" "${4:+of $4 s}")"); }

# check NAME COMMAND...: a step without a budget.
check() {
    local name=$1 start=$SECONDS
    shift
    echo "== $name: $*"
    if bounded 0 "$@"; then
        note ok "$name" $((SECONDS - start)) ""
    else
        note FAILED "$name" $((SECONDS - start)) ""
        failed=1
        return 1
    fi
}

test_crate() {
    local crate=$1 budget=$2
    check "build $crate" cargo test --locked -p "$crate" --no-run || return
    echo "== test $crate: at most $budget s"
    local start=$SECONDS code result=ok
    bounded $((FAIL_AT * budget)) cargo test --locked --no-fail-fast -p "$crate"
    code=$?
    local took=$((SECONDS - start))
    if [ "$code" -eq 124 ] || [ "$code" -eq 137 ]; then
        result=TIMEOUT failed=1
    elif [ "$code" -ne 0 ]; then
        result=FAILED failed=1
    elif [ "$took" -gt "$budget" ]; then
        result=SLOW
    fi
    note "$result" "test $crate" "$took" "$budget"
}

check format cargo fmt --all --check
check clippy cargo clippy --locked --workspace --all-targets -- -D warnings
RUSTDOCFLAGS="-D warnings" check documentation cargo doc --locked --workspace --no-deps
while read -r crate budget; do
    [ -z "$crate" ] || test_crate "$crate" "$budget"
done <<<"$BUDGETS"

echo
echo "== summary"
printf '%s\n' "${summary[@]}"
if [ "$failed" -ne 0 ]; then
    echo "Something failed; look for FAILED and TIMEOUT above." >&2
else
    echo "All passed."
fi
exit "$failed"
