#!/usr/bin/env bash
# wheel.sh: the wheel of the Python package for every Linux with glibc 2.28 or newer, linked by Zig, and looked at by auditwheel.
# Exit codes: 0 it is in target/release-files, 1 it cannot be built, 77 what builds it cannot be had here.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly PLATFORM=manylinux_2_28
scratch=$(mktemp -d)
readonly scratch
# In the package while it is built.
readonly third_party=crates/python/THIRD-PARTY.txt
trap 'rm -rf "$scratch" "$third_party"' EXIT
# shellcheck source=common.sh
source scripts/release/common.sh
need_tools build

cp "$WORK/THIRD-PARTY.txt" "$third_party"
mkdir -p "$FILES"
# maturin looks for Zig in the interpreter that is first in PATH.
PATH=$TOOLS/build/bin:$PATH anywhere maturin build --manifest-path crates/python/Cargo.toml --profile dist --locked --zig \
    --compatibility "$PLATFORM" --out "$scratch"
wheel=$(echo "$scratch"/*.whl)
"$TOOLS/build/bin/auditwheel" show "$wheel" | tr '\n' ' ' >"$scratch/said"
grep -q "is consistent with the following platform tag: \"${PLATFORM}_x86_64\"" "$scratch/said" || {
    say "auditwheel says otherwise: $(<"$scratch/said")"
    exit 1
}
mv "$wheel" "$FILES"
