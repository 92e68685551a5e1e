# shellcheck shell=bash
# What the scripts of a release share: its version and time, where its files go, and its tools. Sourced in the repository's
# root.

# What cannot be had here: neither passed nor failed.
readonly NOT_RUN=77
say() { echo "release: $*" >&2; }
not_run() {
    say "NOT RUN: $*"
    exit "$NOT_RUN"
}

# shellcheck source=../packages.sh
source scripts/packages.sh

# of_workspace KEY: a value of [workspace.package].
of_workspace() { sed -n "/^\[workspace.package\]/,/^\$/s/^$1 = \"\(.*\)\"/\1/p" Cargo.toml; }

VERSION=$(of_workspace version)
TARGET=$(realpath -m "${CARGO_TARGET_DIR:-target}")
# The one date in a release: that of its commit.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export VERSION SOURCE_DATE_EPOCH
export LC_ALL=C.UTF-8 TZ=UTC
readonly VERSION TARGET
# What is given away.
readonly FILES=$TARGET/release-files
# What it is made in.
readonly WORK=$TARGET/release-work
readonly TOOLS=$TARGET/release-tools

cargo_home=${CARGO_HOME:-$HOME/.cargo}
readonly cargo_home

# anywhere COMMAND...: builds what does not depend on the folders in which it is built. Of several that fit a path the last counts.
anywhere() {
    RUSTFLAGS="--remap-path-prefix=$cargo_home=/cargo --remap-path-prefix=$PWD=/farside --remap-path-prefix=$TARGET=/target" \
        CFLAGS="-ffile-prefix-map=$cargo_home=/cargo -ffile-prefix-map=$TARGET=/target" "$@"
}

# need_tools NAME: those of requirements/NAME.txt, in $TOOLS/NAME/bin.
need_tools() {
    local wanted=scripts/release/requirements/$1.txt
    cmp -s "$wanted" "$TOOLS/$1/requirements.txt" && return
    mkdir -p "$TOOLS"
    fetch_python "$TOOLS/$1" -r "$wanted"
    cp "$wanted" "$TOOLS/$1/requirements.txt"
}

# need_packages COMMAND PACKAGE...: the distribution's, of which the first has the command.
need_packages() {
    local command=$1
    shift
    command -v "$command" >/dev/null || install_packages "$@" ||
        not_run "there is no $command: sudo apt-get install $*"
}

# publishable: the names of the crates that are published, a line each.
publishable() {
    cargo metadata --locked --no-deps --format-version 1 |
        python3 -c 'import json, sys
for package in json.load(sys.stdin)["packages"]:
    if package["publish"] != []:
        print(package["name"])' | sort
}
