#!/usr/bin/env bash
# Makes sure that everything `make demo` and `make test` need is there.
#
# setup.sh [test]: with `test` also what only the tests need.
#
# Needs: Rust, and a C compiler for linking. Rust is installed for this user, by rustup, after saying so.
# As root on Debian the compiler is installed and, where there is no package index yet, one is fetched
# (the demo's graph). Otherwise it says what to do. With FARSIDE_NO_INSTALL=1 it only says.
set -euo pipefail
# shellcheck source=packages.sh
source "$(dirname "$0")/packages.sh"

readonly RUST_MINOR_MIN=85
readonly PACKAGES=(gcc libc6-dev)
readonly APT_LISTS=/var/lib/apt/lists
readonly RUSTUP_URL=https://sh.rustup.rs
readonly RUSTUP="curl --proto '=https' --tlsv1.2 -sSf $RUSTUP_URL | sh -s -- -y --profile minimal"
readonly LINTS=(rustfmt clippy)

for_tests=false
[ "${1:-}" != test ] || for_tests=true

say() { echo "setup: $*" >&2; }

# What rustup installs comes before what the distribution has, as in the Makefile.
export PATH="${CARGO_HOME:-$HOME/.cargo}/bin:$PATH"

has_rust() { command -v cargo >/dev/null && command -v rustc >/dev/null; }

# rust_is_new: whether the compiler will do. Sets `version`.
rust_is_new() {
    local major minor
    version=$(rustc --version | cut -d' ' -f2)
    major=${version%%.*}
    minor=${version#*.}
    minor=${minor%%.*}
    [ "$major" -gt 1 ] || [ "$minor" -ge "$RUST_MINOR_MIN" ]
}

check_rust() {
    if ! has_rust; then
        install_rust "Rust is missing."
    elif ! rust_is_new; then
        if command -v rustup >/dev/null; then
            say "rustc $version is too old: 1.$RUST_MINOR_MIN or newer is needed. Then run make again:"
            say "  rustup update stable"
            exit 1
        fi
        install_rust "rustc $version is too old: 1.$RUST_MINOR_MIN or newer is needed."
    fi
}

# install_rust WHY: or says how.
install_rust() {
    if ! may_install; then
        say "$1 Install it (needs curl), then run make again:"
        say "  $RUSTUP"
        exit 1
    fi
    say "$1 Installing it for this user, in ~/.rustup and ~/.cargo, by rustup ($RUSTUP_URL)."
    say "It is some 300 MB; 'rustup self uninstall' removes it. FARSIDE_NO_INSTALL=1 keeps it out."
    need curl curl
    need /etc/ssl/certs/ca-certificates.crt ca-certificates
    local script
    script=$(mktemp)
    # shellcheck disable=SC2064 # the file of now
    trap "rm -f '$script'" EXIT
    # To a file first: half a script is not run.
    if ! curl --proto '=https' --tlsv1.2 -sSf "$RUSTUP_URL" -o "$script"; then
        say "rustup cannot be fetched from $RUSTUP_URL; is there a way to the network? By hand:"
        say "  $RUSTUP"
        exit 1
    fi
    if ! sh "$script" -y --profile minimal --no-modify-path >&2; then
        say "rustup has not installed Rust; what it says is above."
        exit 1
    fi
    hash -r
    if ! has_rust || ! rust_is_new; then
        say "rustup has ended well, and there is no Rust of 1.$RUST_MINOR_MIN or newer in PATH."
        exit 1
    fi
    say "Rust $version is there."
}

# need FILE PACKAGE: FILE is a command or a path.
need() {
    if command -v "$1" >/dev/null || [ -e "$1" ] || install_packages "$2"; then
        return
    fi
    say "$2 is missing. Install it, then run make again:"
    say "  sudo apt-get update && sudo apt-get install -y $2"
    exit 1
}

check_lints() {
    local lint
    for lint in "${LINTS[@]}"; do
        if cargo "${lint/rustfmt/fmt}" --version >/dev/null 2>&1; then
            continue
        fi
        if may_install && command -v rustup >/dev/null; then
            say "installing $lint, by rustup"
            rustup component add "$lint" >&2
        else
            say "$lint is missing. Install it, then run make again:"
            say "  rustup component add ${LINTS[*]}"
            exit 1
        fi
    done
}

check_linker() {
    if command -v cc >/dev/null && links; then
        return
    fi
    install_packages "${PACKAGES[@]}" && return
    say "a C compiler and the C library's headers are missing. Install them, then run make again:"
    say "  sudo apt-get update && sudo apt-get install -y ${PACKAGES[*]}"
    exit 1
}

# Whether cc can link a program against the C library.
links() { echo 'int main(void) { return 0; }' | cc -x c -o /dev/null - 2>/dev/null; }

# The demo reads the distribution's package index; it has a graph of its own where there is none.
check_index() {
    if ! command -v apt-get >/dev/null || compgen -G "$APT_LISTS/*_Packages*" >/dev/null; then
        return
    fi
    if is_root && may_install; then
        say "fetching the package index, which is the demo's graph"
        apt-get update -qq || say "no index could be fetched; the demo uses its bundled graph"
    else
        say "no package index here; the demo uses its bundled graph (sudo apt-get update gets one)"
    fi
}

check_userfaultfd() {
    local allowed=/proc/sys/vm/unprivileged_userfaultfd
    if is_root || [ -w /dev/userfaultfd ] || [ "$(cat "$allowed" 2>/dev/null || echo 1)" = 1 ]; then
        return
    fi
    say "note: without root, read(2) and write(2) fail with EFAULT on memory that is on a card."
    say "To allow them: sudo sysctl vm.unprivileged_userfaultfd=1"
    say "(or run as root; \`farside doctor\` says more)"
}

check_rust
check_linker
if "$for_tests"; then check_lints; fi
check_index
check_userfaultfd
