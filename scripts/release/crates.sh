#!/usr/bin/env bash
# crates.sh FOLDER [--no-verify]: the crates that are published, as `cargo publish` would send them.
#
# None of them is on a registry yet: cargo takes those that one needs from beside it, which takes cargo 1.90 or newer. Each
# is built from what is in its package, unless --no-verify is given.
# Exit codes: 0 they are there, 1 one of them is not accepted, 77 this cargo cannot tell.
set -euo pipefail
into=${1:?where to: crates.sh FOLDER [--no-verify]}
shift
mkdir -p "$into"
into=$(realpath "$into")
cd "$(dirname "$0")/../.."

readonly CARGO_MINOR_MIN=90
# shellcheck source=common.sh
source scripts/release/common.sh

minor=$(cargo --version | sed 's/^cargo 1\.\([0-9]*\)\..*/\1/')
[ "$minor" -ge "$CARGO_MINOR_MIN" ] || not_run "crates that need each other are packaged by cargo 1.$CARGO_MINOR_MIN or newer; this is 1.$minor"

publishable >"$into/names"
mapfile -t packages < <(sed 's/^/--package=/' "$into/names")
# What was changed and not committed is in the packages, too; build.sh refuses that.
cargo package --locked --allow-dirty "${packages[@]}" "$@" 2>"$into/said" || {
    cat "$into/said" >&2
    exit 1
}
# Tests and examples are in the repository, and said to be left out.
if grep '^warning: ' "$into/said" | grep -v '^warning: ignoring \(test\|example\) ' >&2; then
    say "cargo package has more to say than it should"
    exit 1
fi
while read -r name; do
    crate=$TARGET/package/$name-$VERSION.crate
    for file in LICENSE-MIT LICENSE-APACHE README.md; do
        tar -tzf "$crate" "$name-$VERSION/$file" >/dev/null || {
            say "$name has no $file in its package"
            exit 1
        }
    done
    cp "$crate" "$into"
done <"$into/names"
rm "$into/names" "$into/said"
