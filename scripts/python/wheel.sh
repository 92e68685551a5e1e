#!/usr/bin/env bash
# wheel.sh: the wheel of the Python package for this machine, in target/wheels.
# Exit codes: 0 it is there, 1 it cannot be built, 77 what builds it cannot be had here.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly NOT_RUN=77
readonly MATURIN_VERSION=1.15.0
TARGET=$(realpath -m "${CARGO_TARGET_DIR:-target}")
readonly TARGET
readonly VENV=$TARGET/maturin

# shellcheck source=../packages.sh
source scripts/packages.sh
say() { echo "wheel: $*" >&2; }
not_run() {
    say "NOT RUN: $*"
    exit "$NOT_RUN"
}

scratch=$(mktemp -d)
readonly scratch
trap 'rm -rf "$scratch"' EXIT

"$VENV/bin/maturin" --version 2>/dev/null | grep -qx "maturin $MATURIN_VERSION" ||
    fetch_python "$VENV" "maturin==$MATURIN_VERSION"
cd crates/python
"$VENV/bin/maturin" build --release --locked --out "$TARGET/wheels"
