# shellcheck shell=bash
# What the scripts of this folder share. Sourced, not run.
#
# Exit codes: 0 passed, 1 failed, 2 wrong use, 77 not run (which is neither).

readonly NOT_RUN=77

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
readonly repository
# shellcheck disable=SC2034 # read by those who source this
readonly DEFAULT_CACHE=${FARSIDE_QEMU_CACHE:-$repository/target/qemu}

say() { echo "qemu: $*" >&2; }

# shellcheck source=../packages.sh
source "$repository/scripts/packages.sh"

# not_run REASON...: ends the script; nothing was tested, so nothing has passed or failed.
not_run() {
    say "NOT RUN: $*"
    exit "$NOT_RUN"
}

# usage: prints the comment at the head of the script that runs and ends it.
usage() {
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
    exit 2
}
