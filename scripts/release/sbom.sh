#!/usr/bin/env bash
# sbom.sh: what is in the command, the library for C and the wheel, as CycloneDX, by cargo-cyclonedx, and checked against its schema.
# Exit codes: 0 they are in target/release-files, 1 they cannot be written or are not valid, 77 what writes them cannot be had here.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly CYCLONEDX=0.5.9 SPECIFICATION=1.5
# A crate, and what it is called in a file's name.
readonly OF="farside-cli command
farside-c library
farside-python python"
scratch=$(mktemp -d)
readonly scratch
trap 'rm -rf "$scratch"' EXIT
# shellcheck source=common.sh
source scripts/release/common.sh
need_tools build

readonly tool=$TARGET/release-cargo
if [ "$("$tool/bin/cargo-cyclonedx" cyclonedx --version 2>/dev/null)" != "cargo-cyclonedx-cyclonedx $CYCLONEDX" ]; then
    may_install || not_run "cargo-cyclonedx is missing, and FARSIDE_NO_INSTALL=1"
    say "building cargo-cyclonedx"
    cargo install --quiet cargo-cyclonedx --version "$CYCLONEDX" --locked --root "$tool" --target-dir "$tool/build" ||
        not_run "cargo cannot install cargo-cyclonedx"
    rm -rf "$tool/build"
fi

# It writes beside each crate: of a copy.
git ls-files -z | tar -c --null -T - | tar -x -C "$scratch"
(cd "$scratch" && "$tool/bin/cargo-cyclonedx" cyclonedx --format json --spec-version "$SPECIFICATION" \
    --target x86_64-unknown-linux-gnu --override-filename sbom --quiet)
mkdir -p "$FILES"
while read -r crate name; do
    sed "s#path+file://$scratch#path+file:///farside#g" "$scratch/crates/${crate#farside-}/sbom.json" \
        >"$FILES/farside-$name-$VERSION.cdx.json"
done <<<"$OF"
"$TOOLS/build/bin/python" - "$SPECIFICATION" "$FILES"/*.cdx.json <<'PYTHON'
import json
import pathlib
import sys

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

version, *files = sys.argv[1:]
validator = JsonStrictValidator(SchemaVersion.from_version(version))
for file in files:
    text = pathlib.Path(file).read_text()
    wrong = validator.validate_str(text)
    if wrong is not None:
        sys.exit(f"{file} is no CycloneDX {version}: {wrong}")
    if not any(part["name"] == "farside-svm" for part in json.loads(text)["components"]):
        sys.exit(f"{file} does not name the driver")
PYTHON
