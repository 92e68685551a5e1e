#!/usr/bin/env bash
# Every check of the repository, one after the other; `make test` and CI run it.
#
# Each crate's tests have a budget of seconds, 670 in all, building excluded. A crate past its budget is
# a warning, because machines are shared; past three times its budget it is stopped and fails.
# The Ray cluster and the virtual machines come last and have limits of their own, which include fetching
# Ray and QEMU. Where one cannot be had the summary says NOT RUN: that is neither passed nor failed.
# A step that fails does not keep the others from running; the summary and the exit code tell.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

# crate, its budget in seconds, and features of which it has tests. Eleven minutes in all: a new crate
# takes from the others.
readonly BUDGETS="
farside-types 5
farside-svm 15
farside-card 25
farside-conformance 10
farside-vfio-user 10
farside-sim 110
farside-linux 5
farside-softcard 10
farside-live 20
farside 60 record
farside-cli 180
farside-guest 5
farside-tests 255
"
readonly FAIL_AT=3

# A minute and a half with two processors, once QEMU and the programs are there.
readonly QEMU_LIMIT_S=900
# A minute with two processors, once Ray is there.
readonly RAY_LIMIT_S=900
# The exit code of a step that could not be run.
readonly NOT_RUN=77

failed=0
not_run=0
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
    local crate=$1 budget=$2 features=$3
    check "build $crate" cargo test --locked -p "$crate" --features "$features" --no-run || return
    echo "== test $crate: at most $budget s"
    local start=$SECONDS code result=ok
    bounded $((FAIL_AT * budget)) cargo test --locked --no-fail-fast -p "$crate" --features "$features"
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

# test_script NAME LIMIT: scripts/NAME/test.sh, and why it could not be run, if it could not.
test_script() {
    local name=$1 limit=$2 start=$SECONDS log code
    log=$(mktemp)
    echo "== test $name: at most $limit s"
    # shellcheck disable=SC2016 # for the inner shell
    bounded "$limit" bash -o pipefail -c '"scripts/$1/test.sh" 2>&1 | tee "$0"' "$log" "$name"
    code=$?
    local took=$((SECONDS - start))
    case $code in
        0) note ok "test $name" "$took" "" ;;
        "$NOT_RUN")
            note "NOT RUN" "test $name" "$took" ""
            summary+=("         $(sed -n "s/^$name: NOT RUN: //p" "$log")")
            not_run=1
            ;;
        124 | 137) note TIMEOUT "test $name" "$took" "$limit" && failed=1 ;;
        *) note FAILED "test $name" "$took" "" && failed=1 ;;
    esac
    rm -f "$log"
}

check format cargo fmt --all --check
check clippy cargo clippy --locked --workspace --all-targets -- -D warnings
RUSTDOCFLAGS="-D warnings" check documentation cargo doc --locked --workspace --no-deps
while read -r crate budget features; do
    [ -z "$crate" ] || test_crate "$crate" "$budget" "$features"
done <<<"$BUDGETS"
test_script ray "$RAY_LIMIT_S"
test_script qemu "$QEMU_LIMIT_S"

echo
echo "== summary"
printf '%s\n' "${summary[@]}"
if [ "$failed" -ne 0 ]; then
    echo "Something failed; look for FAILED and TIMEOUT above." >&2
elif [ "$not_run" -ne 0 ]; then
    echo "Nothing failed; what is marked NOT RUN was not tested."
else
    echo "All passed."
fi
exit "$failed"
