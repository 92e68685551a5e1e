#!/usr/bin/env bash
# test.sh: the Python package, built for this machine, with the interpreter of the system.
#
# Makes a virtual environment in target/python (once), then checks style and types and runs the tests and the examples
# of the documentation.
# Exit codes: 0 all passed, 1 something failed, 77 nothing was run, because what the tests need cannot be had here.
# FARSIDE_PYTHON_VENV names another folder for the virtual environment.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly NOT_RUN=77
readonly INSTALL_LIMIT_S=600
readonly LIMIT_S=600
TARGET=$(realpath -m "${CARGO_TARGET_DIR:-target}")
readonly TARGET
readonly VENV=${FARSIDE_PYTHON_VENV:-$TARGET/python}
readonly PACKAGE=crates/python

# shellcheck source=../packages.sh
source scripts/packages.sh
say() { echo "python: $*" >&2; }
not_run() {
    say "NOT RUN: $*"
    exit "$NOT_RUN"
}

scratch=$(mktemp -d)
readonly scratch
trap 'rm -rf "$scratch"' EXIT

install_requirements() {
    cmp -s "$PACKAGE/requirements.txt" "$VENV/requirements.txt" && return
    if ! python3 -c "import ensurepip, venv" 2>/dev/null && ! install_packages python3 python3-venv; then
        not_run "Python is missing: sudo apt-get install python3 python3-venv"
    fi
    rm -rf "$VENV"
    python3 -m venv "$VENV" 2>"$scratch/venv.log" ||
        not_run "no virtual environment: $(tail -n 1 "$scratch/venv.log")"
    timeout "$INSTALL_LIMIT_S" "$VENV/bin/python" -m pip install --quiet -r "$PACKAGE/requirements.txt" \
        2>"$scratch/pip.log" || not_run "pip cannot install what tests need: $(tail -n 1 "$scratch/pip.log")"
    cp "$PACKAGE/requirements.txt" "$VENV/requirements.txt"
}

install_requirements
# With the features that the other tests have: what they have built is not built again.
cargo build --locked --quiet -p farside-python -p farside-tests --lib
cp "$TARGET/debug/libfarside_python.so" "$PACKAGE/farside/_farside.abi3.so"
cd "$PACKAGE"
export PYTHONPATH=$PWD PYTHONDONTWRITEBYTECODE=1
bin=$(realpath "$VENV/bin")
"$bin/ruff" format --check --quiet .
"$bin/ruff" check --quiet .
"$bin/mypy" --cache-dir "$TARGET/mypy" farside tests
timeout "$LIMIT_S" "$bin/python" -m pytest -p no:cacheprovider
