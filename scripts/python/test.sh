#!/usr/bin/env bash
# test.sh: the Python package, built for this machine, with the interpreter of the system.
#
# Makes a virtual environment in target/python (once), then checks style and types and runs the tests and the examples
# of the documentation.
# Exit codes: 0 all passed, 1 something failed, 77 nothing was run, because what the tests need cannot be had here.
# FARSIDE_PYTHON_LIBRARY names an extension and FARSIDE_BIN a farside command to use instead of those built for the test,
# FARSIDE_PYTHON_VENV another folder for the virtual environment.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly NOT_RUN=77
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

if ! cmp -s "$PACKAGE/requirements.txt" "$VENV/requirements.txt"; then
    fetch_python "$VENV" -r "$PACKAGE/requirements.txt"
    cp "$PACKAGE/requirements.txt" "$VENV/requirements.txt"
fi
if [ -z "${FARSIDE_PYTHON_LIBRARY:-}" ] || [ -z "${FARSIDE_BIN:-}" ]; then
    cargo build --locked --quiet -p farside-python -p farside-cli
fi
library=${FARSIDE_PYTHON_LIBRARY:-$TARGET/debug/libfarside_python.so}
FARSIDE_BIN=$(realpath "${FARSIDE_BIN:-$TARGET/debug/farside}")
export FARSIDE_BIN
cp "$library" "$PACKAGE/farside/_farside.abi3.so"
cd "$PACKAGE"
export PYTHONPATH=$PWD PYTHONDONTWRITEBYTECODE=1
bin=$(realpath "$VENV/bin")
checked=(farside tests conftest.py bench.py ../../examples/flights.py ../../scripts/release/{image,third_party}.py)
notebooks=(../../examples/notebook.ipynb)
"$bin/ruff" format --config pyproject.toml --check --quiet "${checked[@]}" "${notebooks[@]}"
"$bin/ruff" check --config pyproject.toml --quiet "${checked[@]}" "${notebooks[@]}"
"$bin/mypy" --cache-dir "$TARGET/mypy" "${checked[@]}"
timeout "$LIMIT_S" "$bin/python" -m pytest -p no:cacheprovider
