#!/usr/bin/env bash
# again.sh: builds the release again, of a clone in another folder, and compares checksums with those of target/release-files.
# Exit codes: 0 the same bytes, 1 something differs, 77 it cannot be built here.
set -euo pipefail
cd "$(dirname "$0")/../.."

scratch=$(mktemp -d)
readonly scratch
trap 'rm -rf "$scratch"' EXIT
files=$(realpath "${CARGO_TARGET_DIR:-target}/release-files")
git clone --quiet . "$scratch/elsewhere"
# The tools are the same ones; what they make is not.
mkdir -p "$scratch/elsewhere/target"
for tools in release-tools release-cargo; do
    ln -s "$(realpath "${CARGO_TARGET_DIR:-target}/$tools")" "$scratch/elsewhere/target/$tools"
done
env -u CARGO_TARGET_DIR "$scratch/elsewhere/scripts/release/build.sh"
diff "$files/SHA256SUMS" "$scratch/elsewhere/target/release-files/SHA256SUMS" && echo "release: the same bytes"
