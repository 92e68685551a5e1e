#!/usr/bin/env bash
# test.sh: the units in packaging/, as systemd reads them.
#
# systemd-analyze says what it does not understand of a unit and what it cannot start; a unit about which it
# says anything is not sound. Installs systemd where it is missing. Nothing is started: whether a card is
# served as a unit says is tried by hand.
# Exit codes: 0 all passed, 1 something failed, 77 nothing was run, because systemd cannot be had here.
# FARSIDE_BIN names a farside command to use instead of the one that the tests were built with.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly NOT_RUN=77
readonly LIMIT_S=60
readonly INSTALLED=/usr/local/bin/farside
bin=$(realpath -m "${FARSIDE_BIN:-${CARGO_TARGET_DIR:-target}/debug/farside}")
readonly bin

# shellcheck source=../packages.sh
source scripts/packages.sh
say() { echo "systemd: $*" >&2; }
not_run() {
    say "NOT RUN: $*"
    exit "$NOT_RUN"
}

command -v systemd-analyze >/dev/null || install_packages systemd ||
    not_run "systemd-analyze is missing: sudo apt-get install systemd"
[ -x "$bin" ] || cargo build --locked --quiet -p farside-cli --bin farside

scratch=$(mktemp -d)
readonly scratch
trap 'rm -rf "$scratch"' EXIT

failed=0
check() {
    local name=$1
    shift
    if "$@"; then
        echo "ok      $name"
    else
        echo "FAILED  $name"
        failed=1
    fi
}

# is_sound UNIT FILE: what the file says, as the unit of that name.
is_sound() {
    local unit=$scratch/$1
    # The command is where this machine has it.
    sed "s#$INSTALLED#$bin#" "$2" >"$unit"
    grep -q "$bin" "$unit" || return
    timeout "$LIMIT_S" systemd-analyze verify --man=no "$unit" >"$scratch/said" 2>&1 || {
        cat "$scratch/said"
        return 1
    }
    [ ! -s "$scratch/said" ] || {
        cat "$scratch/said"
        return 1
    }
}

# The command takes every option that the unit gives it.
options_are_known() {
    local options option
    options=$(sed -n 's/^ExecStart=//p' packaging/farside-card@.service | grep -o -- '--[a-z-]*')
    for option in $options; do
        "$bin" card serve --help | grep -q -- "$option" || return
    done
}

# A unit that cannot be, in one way or another.
is_noticed() {
    sed "$1" packaging/farside-card@.service >"$scratch/wrong"
    ! is_sound farside-card@0.service "$scratch/wrong" >/dev/null
}

check "farside-card@0.service" is_sound farside-card@0.service packaging/farside-card@.service
check "its options" options_are_known
check "farside-lend.service" is_sound farside-lend.service packaging/farside-lend.service
check "control: a directive that nobody knows" is_noticed 's/^UMask=/Umaks=/'
check "control: a value that makes no sense" is_noticed 's/^NoNewPrivileges=.*/NoNewPrivileges=perhaps/'
check "control: a command that is not there" is_noticed "s#$INSTALLED#/nonexistent$INSTALLED#"
exit "$failed"
