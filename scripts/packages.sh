# shellcheck shell=bash
# Packages of the distribution, for the scripts that need them. Sourced, not run; `say` is theirs.
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
    # A machine that was just set up has no index of packages, or an old one.
    apt_install "$@" 2>/dev/null || { apt-get update -qq && apt_install "$@"; }
}
