#!/usr/bin/env bash
# test.sh: `farside sweep --on ray` on a local Ray cluster.
#
# Makes a virtual environment with Ray in target/ray (once); each sweep starts a cluster of its own there.
# Sees that the same grid gives the same table there as in local processes, that a cell that fails is told of, and
# that nothing is run twice. Prints a line per check: "ok" or "FAILED".
# Exit codes: 0 all passed, 1 something failed, 77 nothing was run, because Ray cannot be had here.
# FARSIDE_BIN names a farside command to use instead of one built for the test, FARSIDE_RAY_VENV another
# folder for the virtual environment.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly NOT_RUN=77
readonly RAY_VERSION=2.55.1
readonly LIMIT_S=300
readonly TARGET=${CARGO_TARGET_DIR:-target}
readonly VENV=${FARSIDE_RAY_VENV:-$TARGET/ray}
readonly PYTHON=$VENV/bin/python
fixtures=$PWD/crates/workloads/fixtures
readonly fixtures

# shellcheck source=../packages.sh
source scripts/packages.sh
say() { echo "ray: $*" >&2; }
not_run() {
    say "NOT RUN: $*"
    exit "$NOT_RUN"
}

scratch=$(mktemp -d)
readonly scratch
trap 'rm -rf "$scratch"' EXIT

install_ray() {
    "$PYTHON" -c "import ray; assert ray.__version__ == '$RAY_VERSION'" 2>/dev/null && return
    fetch_python "$VENV" "ray==$RAY_VERSION"
}

failed=0
check() {
    local name=$1
    shift
    if "$@"; then
        echo "ok      $name"
    else
        echo "FAILED  $name"
        failed=1
    fi
}

farside() { timeout "$LIMIT_S" "$bin" "$@" </dev/null; }

same_table() {
    farside sweep "$scratch/grid.toml" --cache "$scratch/local" --out "$scratch/local.csv" &&
        farside sweep "$scratch/grid.toml" --cache "$scratch/ray" --out "$scratch/ray.csv" \
            --on ray --python "$PYTHON" &&
        cmp "$scratch/local.csv" "$scratch/ray.csv"
}

# With everything in the cache no cluster is started: an interpreter that is none is not noticed.
nothing_twice() {
    farside sweep "$scratch/grid.toml" --cache "$scratch/ray" --out "$scratch/again.csv" \
        --on ray --python /dev/null && cmp "$scratch/ray.csv" "$scratch/again.csv"
}

failure_is_told() {
    ! farside sweep "$scratch/failing.toml" --cache "$scratch/failing" --out "$scratch/failing.csv" \
        --on ray --python "$PYTHON" 2>"$scratch/failing.log" &&
        grep -q "the trace uses 4" "$scratch/failing.log" &&
        [ "$(wc -l <"$scratch/failing.csv")" -eq 3 ]
}

no_ray_is_told() {
    ! farside sweep "$scratch/grid.toml" --cache "$scratch/none" --on ray --python python3 -q \
        2>"$scratch/none.log" >/dev/null && grep -q "pip install ray" "$scratch/none.log"
}

install_ray
bin=${FARSIDE_BIN:-}
if [ -z "$bin" ]; then
    cargo build --locked --quiet -p farside-cli --bin farside
    bin=$TARGET/debug/farside
fi
cat >"$scratch/grid.toml" <<END
[[grid]]
traces = ["$fixtures/mm.bin.zst", "$fixtures/st.bin.zst"]
schemes = ["on-touch", "duplication"]
set = { "gpu.count" = [4, 8] }
[[grid]]
workloads = ["fir"]
bytes = ["1M"]
schemes = ["on-touch", "grit"]
END
cat >"$scratch/failing.toml" <<END
[[grid]]
traces = ["$fixtures/mm.bin.zst"]
schemes = ["on-touch"]
set = { "gpu.count" = [4, 2] }
END

check "the table of a Ray cluster is that of local processes" same_table
check "nothing is run twice" nothing_twice
check "a cell that fails is told of, the others are done" failure_is_told
if ! python3 -c "import ray" 2>/dev/null; then
    check "an interpreter without Ray is told what to do" no_ray_is_told
fi
exit "$failed"
