#!/usr/bin/env bash
# Every check of the repository, one after the other; `make test` and CI run it.
#
# All tests are built once, together. Then each crate's tests have a budget of seconds of processor time,
# their own and that of the processes that they start, so that it does not matter what else the machine
# does. A crate past its budget is a warning, past three times its budget it fails. Against tests that hang
# there is a limit of time as well, with which they pass on a machine that is eight times as busy.
# Lending in network namespaces and the VHDL run beside them, which leave a processor alone for much of their time; the units for
# systemd, the Ray cluster, the library for C, the Python package, the pages of reports, what a release needs and the virtual machines come last. These have limits of their own, which include fetching what they need. Where that cannot
# be had the summary says NOT RUN: neither passed nor failed.
# A step that fails does not keep the others from running; the summary and the exit code tell.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

# folder of a crate and its budget in seconds of processor time; every crate has one.
readonly BUDGETS="
crates/types 10
crates/svm 30
crates/plugin 30
crates/parquet 10
crates/events 30
crates/report 10
crates/card 60
crates/conformance 30
crates/vfio-user 30
crates/linux 30
crates/fabric 30
crates/lease 200
crates/link 120
crates/lend 120
crates/softcard 60
crates/live 60
crates/workloads 60
crates/sim 200
crates/farside 60
crates/c 30
crates/cli 400
guest 10
tests 700
documentation 120
"
readonly FAIL_AT=3
# How much longer than its budget, on two processors, a step may be under way, and so many seconds.
readonly HANGS_AT=8
readonly HANGS_AT_LEAST_S=300

# A minute and a half with two processors, once QEMU and the programs are there.
readonly QEMU_LIMIT_S=1800
# A minute with two processors, once Ray is there.
readonly RAY_LIMIT_S=1800
# Two minutes with two processors, and another one the first time, for a published device.
readonly LEND_LIMIT_S=900
# Four minutes with two processors of its own, once the tools are there.
readonly RTL_LIMIT_S=1800
# Half a minute with two processors, once NumPy and Numba are there.
readonly PYTHON_LIMIT_S=1800
# A quarter of a minute, once CMake is there.
readonly C_LIMIT_S=600
# A quarter of a minute, once Chromium and Playwright are there.
readonly REPORT_LIMIT_S=1800
# Half a minute, once cargo-deny is there.
readonly RELEASE_LIMIT_S=600
# A second, once systemd is there.
readonly SYSTEMD_LIMIT_S=600
# The exit code of a step that could not be run.
readonly NOT_RUN=77

failed=0
not_run=0
child=
# The scripts that run beside the steps: the process of each.
declare -A besides=()
summary=()
scratch=$(mktemp -d)
readonly scratch

# Ctrl-C reaches the tests, which are in a process group of their own.
trap 'kill $child "${besides[@]}" 2>/dev/null; rm -rf "$scratch"; exit 130' INT TERM
trap 'rm -rf "$scratch"' EXIT

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

# Sets `used` to the seconds of processor time of all processes that have ended so far.
processor_time() {
    # In this shell: another one would tell of its own children.
    times >"$scratch/times"
    used=$(awk 'NR == 2 { gsub(/[ms]/, " "); print int($1 * 60 + $2 + $3 * 60 + $4) }' "$scratch/times")
}

# note RESULT NAME SECONDS PROCESSOR_SECONDS BUDGET
note() {
    summary+=("$(printf '%-8s %-26s %5s s %6s s of processor time%s' "$1" "$2" "$3" "$4" "${5:+ of $5 s}")")
}

# check NAME COMMAND...: a step without a budget.
check() {
    local name=$1 start=$SECONDS before used result=ok
    shift
    processor_time
    before=$used
    echo "== $name: $*"
    bounded 0 "$@" || result=FAILED failed=1
    processor_time
    note "$result" "$name" $((SECONDS - start)) $((used - before)) ""
    [ "$result" = ok ]
}

# step NAME BUDGET COMMAND...: tests with a budget.
step() {
    local name=$1 budget=$2 start=$SECONDS before used code result=ok
    shift 2
    processor_time
    before=$used
    echo "== test $name: at most $budget s of processor time"
    bounded $((HANGS_AT * budget + HANGS_AT_LEAST_S)) "$@"
    code=$?
    processor_time
    local took=$((used - before))
    if [ "$code" -eq 124 ] || [ "$code" -eq 137 ]; then
        result=TIMEOUT failed=1
    elif [ "$code" -ne 0 ] || [ "$took" -gt $((FAIL_AT * budget)) ]; then
        result=FAILED failed=1
    elif [ "$took" -gt "$budget" ]; then
        result=SLOW
    fi
    note "$result" "test $name" $((SECONDS - start)) "$took" "$budget"
    [ ! -s "$scratch/failures" ] || summary+=("$(<"$scratch/failures")")
    rm -f "$scratch/failures"
}

# Builds all tests; afterwards $scratch/tests has a line for each program of tests: the folder of its
# crate, and the program. $scratch/farside names the command, $scratch/python the extension of Python, and $scratch/c the library
# for C, which were built with them: `cargo test` would not build libraries, and alone they have other features than they have.
build_tests() {
    cargo build --locked --workspace --lib --bins --tests --examples --message-format=json-render-diagnostics \
        >"$scratch/built" || return
    sed -n 's/.*"manifest_path":"\([^"]*\)\/Cargo.toml".*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*/\1 \2/p' \
        "$scratch/built" >"$scratch/tests"
    sed -n 's/.*"target":{"kind":\["bin"\][^}]*"name":"farside",.*"test":false}.*"executable":"\([^"]*\)".*/\1/p' "$scratch/built" |
        head -n 1 >"$scratch/farside"
    sed -n 's/.*"name":"farside_python".*"filenames":\["\([^"]*\.so\)".*/\1/p' "$scratch/built" >"$scratch/python"
    sed -n 's/.*"name":"farside_c".*"filenames":\["\([^"]*\)\/[^"/]*".*/\1/p' "$scratch/built" | head -n 1 >"$scratch/c"
    [ -s "$scratch/tests" ] && [ -s "$scratch/farside" ] &&
        [ -s "$scratch/python" ] && [ -s "$scratch/c" ]
}

# run_tests FOLDER: the tests of the crate in that folder, as cargo runs them, but two programs at a time: they
# wait for half of their time.
run_tests() {
    local folder=$PWD/$1 programs
    programs=$(awk -v folder="$folder" '$1 == folder { print $2 }' "$scratch/tests")
    if [ -z "$programs" ]; then
        echo "$1 has a budget in scripts/test.sh and no tests" >&2
        return 1
    fi
    # shellcheck disable=SC2016 # for the inner shell
    (cd "$folder" && xargs -n 1 -P 2 bash -c 'run_program "$0"' <<<"$programs")
}

# run_program PROGRAM: the tests of one program; what it prints comes at once, when it has ended.
run_program() {
    local log=$scratch/${1##*/}.log code=0
    "$1" -q >"$log" 2>&1 </dev/null || code=1
    (
        flock 9
        echo "   ${1##*/}"
        cat "$log"
        [ "$code" -eq 0 ] || failures_of "${1##*/}" "$log" >>"$scratch/failures"
    ) 9>"$scratch/printing"
    rm "$log"
    return "$code"
}

# failures_of PROGRAM LOG: for the summary, which of the program's tests failed and where it panicked; the end of what it
# said where it ended before it could tell.
failures_of() {
    local found
    found=$(
        sed -n '/^failures:$/,$ s/^    \([a-z0-9_:]*\)$/\1/p' "$2" | sort -u | head -n 8
        grep -a -A 1 "^thread '.*panicked at " "$2" | grep -av '^--$' | cut -c 1-240 | head -n 8
    )
    sed "s/^/         ${1%-*}: /" <<<"${found:-$(tail -n 3 "$2" | cut -c 1-240)}"
}

# A crate that has tests and no budget would not be tested.
all_have_budgets() {
    local of program
    while read -r of program; do
        if ! grep -q "^${of#"$PWD"/} " <<<"$BUDGETS"; then
            echo "${of#"$PWD"/} has no budget in scripts/test.sh" >&2
            return 1
        fi
    done <"$scratch/tests"
}

# What cargo sets for the tests that it runs, and what the shells of the steps need.
CARGO=$(command -v cargo)
export CARGO BUDGETS scratch
export -f build_tests run_tests run_program failures_of all_have_budgets

# test_script NAME LIMIT [SCRIPT]: scripts/NAME/test.sh or that one, and why it could not be run, if it could not.
test_script() {
    local name=$1 limit=$2 script=${3:-test.sh} start=$SECONDS code before used
    processor_time
    before=$used
    echo "== test $name: at most $limit s"
    # shellcheck disable=SC2016 # for the inner shell
    bounded "$limit" bash -o pipefail -c '"scripts/$1/$2" 2>&1 | tee "$0"' "$scratch/$name.log" "$name" "$script"
    code=$?
    processor_time
    note_script "$name" "$code" $((SECONDS - start)) $((used - before))
}

# begin_script NAME LIMIT NICENESS: scripts/NAME/test.sh beside what follows, until end_script NAME. With a niceness of 19 it has
# what the steps leave of the processors.
begin_script() {
    echo "$2" >"$scratch/$1.took"
    # shellcheck disable=SC2016 # for the inner shell
    timeout --kill-after=10 "$2" nice -n "$3" bash -c '
        "scripts/$1/test.sh"
        code=$?
        echo "$SECONDS" >"$0"
        exit "$code"' "$scratch/$1.took" "$1" >"$scratch/$1.log" 2>&1 </dev/null &
    besides[$1]=$!
}

# end_script NAME: waits for the script that was begun, and shows what it printed.
end_script() {
    local name=$1 code before used
    processor_time
    before=$used
    echo "== test $name, begun before"
    wait "${besides[$name]}"
    code=$?
    unset "besides[$name]"
    cat "$scratch/$name.log"
    processor_time
    note_script "$name" "$code" "$(<"$scratch/$name.took")" $((used - before))
}

# note_script NAME CODE SECONDS PROCESSOR_SECONDS
note_script() {
    local name=$1 code=$2 took=$3 of=$4
    case $code in
        0) note ok "test $name" "$took" "$of" "" ;;
        "$NOT_RUN")
            note "NOT RUN" "test $name" "$took" "$of" ""
            summary+=("         $(sed -n "s/^$name: NOT RUN: //p" "$scratch/$name.log")")
            not_run=1
            ;;
        124 | 137) note TIMEOUT "test $name" "$took" "$of" "" && failed=1 ;;
        *) note FAILED "test $name" "$took" "$of" "" && failed=1 ;;
    esac
}

check format cargo fmt --all --check
check clippy cargo clippy --locked --workspace --all-targets -- -D warnings
# Without what others ask of it: a program that uses it has no more.
check "clippy of the library" cargo clippy --locked -p farside -- -D warnings
# They are no members of the workspace: to run them takes a nightly Rust and a C++ compiler. With the versions and the
# profile that the workspace has, most of what they need is there already.
clippy_of_fuzzers() {
    CARGO_PROFILE_DEV_DEBUG=0 cargo clippy --manifest-path "crates/$1/fuzz/Cargo.toml" \
        --no-default-features --target-dir target -- -D warnings
}
export -f clippy_of_fuzzers
cp Cargo.lock crates/lend/fuzz/Cargo.lock
cp Cargo.lock crates/card/fuzz/Cargo.lock
for crate in vfio-user lend card; do
    check "clippy of fuzzers, $crate" bash -c 'clippy_of_fuzzers "$0"' "$crate"
done
RUSTDOCFLAGS="-D warnings" check documentation cargo doc --locked --workspace --no-deps
if check "build tests" bash -c build_tests && check "all have budgets" bash -c all_have_budgets; then
    # Built alone, the command's crates have other features than the tests have, and all of them would be built again.
    FARSIDE_BIN=$(<"$scratch/farside")
    FARSIDE_PYTHON_LIBRARY=$(<"$scratch/python")
    FARSIDE_C_LIBRARY=$(<"$scratch/c")
    export FARSIDE_BIN FARSIDE_PYTHON_LIBRARY FARSIDE_C_LIBRARY
    begin_script rtl "$RTL_LIMIT_S" 19
    while read -r folder budget; do
        # Lending mostly waits, and so do the two longest steps.
        [ "$folder" != crates/cli ] || begin_script lend "$LEND_LIMIT_S" 0
        case $folder in
            "") ;;
            documentation) step "$folder" "$budget" cargo test --locked --workspace --doc -q ;;
            *) step "$folder" "$budget" bash -c 'run_tests "$0"' "$folder" ;;
        esac
    done <<<"$BUDGETS"
    end_script lend
fi
# What runs without a lock, in every order that loom finds. A build of its own: loom replaces the atomics.
RUSTFLAGS="--cfg loom" check loom cargo test --locked --release -p farside-card --test loom \
    --target-dir target/loom -q
test_script systemd "$SYSTEMD_LIMIT_S"
test_script ray "$RAY_LIMIT_S"
test_script c "$C_LIMIT_S"
test_script python "$PYTHON_LIMIT_S"
test_script report "$REPORT_LIMIT_S"
test_script release "$RELEASE_LIMIT_S" check.sh
test_script qemu "$QEMU_LIMIT_S"
[ -z "${besides[rtl]:-}" ] || end_script rtl

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
