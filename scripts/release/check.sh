#!/usr/bin/env bash
# check.sh: what can be said of a release without building one: that the crates can be packaged, that all licences are known
# ones, that one version is everywhere, and that the Debian packages say what they must. Seconds; `make test` runs it.
# Exit codes: 0 all passed, 1 something failed, 77 nothing failed, and something was not run, because what it needs cannot
# be had here.
set -euo pipefail
cd "$(dirname "$0")/../.."

scratch=$(mktemp -d)
readonly scratch
trap 'rm -rf "$scratch"' EXIT
# shellcheck source=common.sh
source scripts/release/common.sh
need_tools check

failed=0
left_out=0
# check NAME COMMAND...
check() {
    local name=$1 code=0
    shift
    "$@" >"$scratch/said" 2>&1 || code=$?
    case $code in
        0) echo "ok      $name" ;;
        "$NOT_RUN")
            say "NOT RUN: $name: $(tail -n 1 "$scratch/said")"
            left_out=1
            ;;
        *)
            echo "FAILED  $name"
            cat "$scratch/said"
            failed=1
            ;;
    esac
}
# fails COMMAND...: a control.
fails() { ! "$@"; }

licences() { "$TOOLS/check/bin/cargo-deny" --all-features --config "$1" --locked check licenses; }
# A licence less than there are.
licences_without_isc() {
    sed '/"ISC",/d' deny.toml >"$scratch/deny.toml"
    licences "$scratch/deny.toml"
}

# Each crate of ours is asked for with the version that it has.
one_version() {
    grep '^farside[a-z-]* = ' Cargo.toml >"$scratch/ours" || return
    ! grep -v "version = \"=$VERSION\"" "$scratch/ours" &&
        grep -q "^## \[\(Unreleased\|$VERSION\)\]" CHANGELOG.md
}

# What cargo knows as a library and nobody depends on is published or says that it is not.
all_of_ours_are_published() {
    # In a condition, as here, a command that fails does not end a function.
    publishable >"$scratch/publishable" || return
    cargo tree --locked -p farside-cli -p farside --edges normal --prefix none --all-features >"$scratch/tree" || return
    sed -n 's/^\(farside[a-z-]*\) .*/\1/p' "$scratch/tree" | sort -u >"$scratch/needed"
    [ -s "$scratch/needed" ] && [ -s "$scratch/publishable" ] || return
    comm -13 "$scratch/publishable" "$scratch/needed" >"$scratch/missing"
    [ ! -s "$scratch/missing" ] || {
        cat "$scratch/missing"
        return 1
    }
}

# The library's package is called as its soname says.
library_is_called_so() {
    grep -qx "Package: libfarside$(sed -n 's/^#define FARSIDE_ABI //p' include/farside.h)" packaging/debian/control
}

# Each package has a list of its files, and says what it is.
control_is_sound() {
    local package packages
    packages=$(sed -n 's/^Package: //p' "$1")
    [ -n "$packages" ] || return
    for package in $packages; do
        [ -s "packaging/debian/$package.install" ] || return
        sed -n "/^Package: $package\$/,/^\$/p" "$1" >"$scratch/paragraph"
        for field in Architecture Depends Description; do
            grep -q "^$field: ." "$scratch/paragraph" || {
                echo "$package has no $field"
                return 1
            }
        done
    done
}
control_without_description() {
    sed '/^Description:/d' packaging/debian/control >"$scratch/control"
    control_is_sound "$scratch/control"
}

check "licences of all dependencies" licences deny.toml
check "control: a licence that is not allowed" fails licences_without_isc
check "one version" one_version
check "what the command needs is published" all_of_ours_are_published
check "the library's package and its soname" library_is_called_so
check "Debian's control file" control_is_sound packaging/debian/control
check "control: a package that says nothing of itself" fails control_without_description
check "crates can be packaged" scripts/release/crates.sh "$scratch/crates" --no-verify
[ "$failed" -eq 0 ] || exit 1
[ "$left_out" -eq 0 ] || exit "$NOT_RUN"
