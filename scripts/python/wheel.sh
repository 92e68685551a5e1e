#!/usr/bin/env bash
# wheel.sh: the wheel of the Python package for this machine, in target/wheels.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly MATURIN_VERSION=1.15.0
TARGET=$(realpath -m "${CARGO_TARGET_DIR:-target}")
readonly TARGET
readonly VENV=$TARGET/maturin

if ! [ -x "$VENV/bin/maturin" ]; then
    python3 -m venv "$VENV"
    "$VENV/bin/python" -m pip install --quiet "maturin==$MATURIN_VERSION"
fi
cd crates/python
"$VENV/bin/maturin" build --release --locked --out "$TARGET/wheels"
