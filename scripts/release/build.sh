#!/usr/bin/env bash
# build.sh [--anyway]: all files of a release, in target/release-files: wheel, Debian packages, OCI image, crates, what is in them, whose
# licences they have, and checksums. Of the same commit and tools it makes the same bytes (scripts/release/again.sh looks).
#
# It refuses a tree with changes that are not committed; --anyway is for trying.
# Exit codes: 0 all are there, 1 something failed, 77 what is needed for one of them cannot be had here.
set -euo pipefail
cd "$(dirname "$0")/../.."

# shellcheck source=common.sh
source scripts/release/common.sh

if [ -n "$(git status --porcelain)" ] && [ "${1:-}" != --anyway ]; then
    say "there are changes that are not committed: a release is of a commit (git status)"
    exit 1
fi
scripts/release/check.sh
rm -rf "$FILES" "$WORK"
mkdir -p "$FILES" "$WORK"
python3 scripts/release/third_party.py farside-cli farside-c farside-python >"$WORK/THIRD-PARTY.txt"
scripts/release/wheel.sh
scripts/release/deb.sh
scripts/release/image.sh
scripts/release/crates.sh "$FILES/crates"
scripts/release/sbom.sh
cp "$WORK/THIRD-PARTY.txt" "$FILES"
(cd "$FILES" && find . -type f ! -name SHA256SUMS -printf '%P\n' | sort | xargs sha256sum >SHA256SUMS)
say "Farside $VERSION is in $FILES:"
(cd "$FILES" && ls -l --human-readable -- *.* | awk '{ print $5 "\t" $9 }')
