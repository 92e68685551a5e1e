#!/usr/bin/env bash
# Makes sure that everything `make demo` and `make test` need is there.
#
# Needs: Rust, and a C compiler for linking. As root on Debian it installs the compiler and, where
# there is no package index yet, fetches one (the demo's graph). Otherwise it says what to do.
set -euo pipefail

readonly RUST_MINOR_MIN=85
readonly PACKAGES=(gcc libc6-dev)
readonly APT_LISTS=/var/lib/apt/lists
readonly RUSTUP="curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y"

say() { echo "setup: $*" >&2; }

is_root() { [ "$(id -u)" -eq 0 ]; }

check_rust() {
    if ! command -v cargo >/dev/null || ! command -v rustc >/dev/null; then
        say "Rust is missing. Install it (needs curl), then run make again:"
        say "  $RUSTUP"
        exit 1
    fi
    local version major minor
    version=$(rustc --version | cut -d' ' -f2)
    major=${version%%.*}
    minor=${version#*.}
    minor=${minor%%.*}
    if [ "$major" -eq 1 ] && [ "$minor" -lt "$RUST_MINOR_MIN" ]; then
        say "rustc $version is too old: 1.$RUST_MINOR_MIN or newer is needed."
        if command -v rustup >/dev/null; then
            say "  rustup update stable"
        else
            say "  $RUSTUP"
            say "and make sure that ~/.cargo/bin comes before $(command -v rustc) in PATH."
        fi
        exit 1
    fi
}

check_linker() {
    if command -v cc >/dev/null && links; then
        return
    fi
    if is_root && command -v apt-get >/dev/null; then
        say "installing ${PACKAGES[*]}"
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends "${PACKAGES[@]}" >/dev/null
        return
    fi
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
    if is_root; then
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
check_index
check_userfaultfd
