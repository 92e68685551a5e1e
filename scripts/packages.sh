# shellcheck shell=bash
# Packages of the distribution and of Python, for the scripts that need them. Sourced, not run; `say` is theirs, and for
# Python's `not_run` and the folder `scratch`.
#
# FARSIDE_NO_INSTALL=1: nothing is installed, what is missing is only told of.

may_install() { [ "${FARSIDE_NO_INSTALL:-}" != 1 ]; }

is_root() { [ "$(id -u)" -eq 0 ]; }

apt_install() {
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# install_packages PACKAGE...: fails where it cannot be done, or may not.
install_packages() {
    may_install && is_root && command -v apt-get >/dev/null || return 1
    say "installing $*"
    local target=${CARGO_TARGET_DIR:-$(dirname "${BASH_SOURCE[0]}")/../target}
    mkdir -p "$target"
    # Scripts that run beside each other do not install at the same time. A machine that was just set up has no index of
    # packages, or an old one.
    (
        flock 8
        apt_install "$@" 2>/dev/null || { apt-get update -qq && apt_install "$@"; }
    ) 8>"$target/packages.lock"
}

# Seconds that a download from PyPI may take.
readonly PIP_LIMIT_S=600

# fetch_python FOLDER ARGUMENT...: a new virtual environment there, with what these arguments of pip name. Does not
# return where it cannot be had.
fetch_python() {
    local into=$1
    shift
    may_install || not_run "$into is missing, and FARSIDE_NO_INSTALL=1"
    if ! python3 -c "import ensurepip, venv" 2>/dev/null && ! install_packages python3 python3-venv; then
        not_run "Python is missing: sudo apt-get install python3 python3-venv"
    fi
    say "fetching ${*%%==*} from PyPI"
    rm -rf "$into"
    python3 -m venv "$into" 2>"$scratch/venv.log" ||
        not_run "no virtual environment: $(tail -n 1 "$scratch/venv.log")"
    timeout "$PIP_LIMIT_S" "$into/bin/python" -m pip install --quiet --disable-pip-version-check "$@" \
        2>"$scratch/pip.log" || not_run "pip cannot install $*: $(tail -n 1 "$scratch/pip.log")"
    [ "$1" != -r ] || tell_unpinned "$into" "$2"
}

# tell_unpinned FOLDER REQUIREMENTS: says which packages there have versions that this file does not fix, as where another
# Python needs more of them: they may be others tomorrow.
tell_unpinned() {
    local others
    # shellcheck disable=SC2016 # for awk
    local alike='BEGIN { FS = OFS = "==" } { sub(/\[.*\]/, "", $1); gsub(/[_.]/, "-", $1); print }'
    others=$("$1/bin/python" -m pip --disable-pip-version-check freeze | awk "$alike" |
        { grep -vixF -f <(awk "$alike" "$2") || true; } | xargs)
    [ -z "$others" ] || say "not pinned by $2: $others"
}
