#!/usr/bin/env bash
# prepare.sh [DIR]: makes everything a guest needs, in DIR (target/qemu of the repository).
#
#   DIR/qemu-system-x86_64   QEMU 11, with its own libraries
#   DIR/vmlinuz              a Debian cloud kernel; DIR/kernel-version names it
#   DIR/modules/*.ko         its modules for user-space drivers, to be loaded in order of name
#   DIR/busybox              a static busybox, for the guest and for packing its files
#
# Packages are fetched and checked by apt with a state of its own in DIR, and only unpacked: nothing
# is installed on this machine and root is not needed. Finished steps are not done again; a change of
# this script undoes them. Where it cannot be done: exit code 77 and the reason.
set -euo pipefail
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"

[ $# -le 1 ] || usage
case ${1:-} in -*) usage ;; esac

readonly RELEASE=trixie
readonly KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
readonly FALLBACK_MIRROR=http://deb.debian.org/debian
# In the order in which they depend on each other.
readonly MODULES=(irqbypass vfio vfio_iommu_type1 vfio-pci-core vfio-pci)

mkdir -p "${1:-$DEFAULT_CACHE}"
cache=$(cd "${1:-$DEFAULT_CACHE}" && pwd)
readonly cache
wrapper=$(dirname "$0")/qemu-wrapper
readonly wrapper
recipe=$(cat "$0" "$wrapper" | cksum | cut -d' ' -f1)
readonly recipe
work=$cache/unfinished
readonly work

# need FILE PACKAGE: FILE is a command or a path.
need() {
    if command -v "$1" >/dev/null || [ -e "$1" ]; then
        return
    fi
    install_packages "$2" && return
    not_run "$1 is missing; install it: sudo apt-get install $2"
}

check_machine() {
    [ "$(uname -sm)" = "Linux x86_64" ] || not_run "this is $(uname -sm), not Linux x86_64"
    command -v apt-get >/dev/null || not_run "apt-get is missing: this needs Debian or a relative"
    need dpkg-deb dpkg
    need flock util-linux
    need "$KEYRING" debian-archive-keyring
}

# The Debian mirror that this machine uses.
mirror() {
    local found
    # shellcheck disable=SC2016 # the word is apt's
    found=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        grep -E '^https?://.*/debian/$' | sed -n 1p) || true
    echo "${found:-$FALLBACK_MIRROR}"
}

# apt_private TOOL ARGUMENT...: an apt that knows of nothing installed and of RELEASE only.
apt_private() {
    local tool=$1
    shift
    "$tool" \
        -o Dir::State="$cache/apt" -o Dir::State::status="$cache/apt/status" \
        -o Dir::Cache="$cache/apt" -o Dir::Etc::sourcelist="$cache/apt/sources.list" \
        -o Dir::Etc::sourceparts=/dev/null -o Dir::Etc::preferences=/dev/null \
        -o Dir::Etc::preferencesparts=/dev/null \
        -o APT::Architecture=amd64 -o APT::Architectures::=amd64 -o APT::Sandbox::User=root \
        -o APT::Update::Error-Mode=any \
        -o Acquire::Languages=none -o Acquire::Retries=2 -o Acquire::http::Timeout=30 "$@"
}

index() {
    local from
    from=$(mirror)
    say "fetching the package index of $RELEASE"
    mkdir -p "$cache/apt/lists/partial" "$cache/apt/archives/partial"
    : >"$cache/apt/status"
    for suite in "$RELEASE" "$RELEASE-backports"; do
        echo "deb [signed-by=$KEYRING] $from $suite main"
    done >"$cache/apt/sources.list"
    apt_private apt-get -qq update >&2 || not_run "the package index of $RELEASE cannot be fetched"
}

# fetch SUITE PACKAGE: the package and all it depends on, unpacked to $work/tree.
# The C library is in every closure, so an empty list is an error and not "nothing to do".
fetch() {
    rm -rf "$cache/apt/archives"
    mkdir -p "$cache/apt/archives/partial" "$work/tree"
    apt_private apt-get install -qq -y --download-only --no-install-recommends -t "$1" "$2" >&2 ||
        not_run "$2 of $1 cannot be fetched"
    unpack "$cache"/apt/archives/*.deb
    rm -rf "$cache/apt/archives"
}

# fetch_alone PACKAGE: only this package of RELEASE, unpacked to $work/tree.
fetch_alone() {
    mkdir -p "$work/tree"
    (cd "$work" && apt_private apt-get download -qq "$1" >&2) || not_run "$1 cannot be fetched"
    unpack "$work"/*.deb
}

unpack() {
    local package
    for package in "$@"; do
        dpkg-deb -x "$package" "$work/tree"
    done
}

make_busybox() {
    fetch_alone busybox-static
    mv "$work/tree/usr/bin/busybox" "$cache/busybox"
}

make_kernel() {
    local package version module
    package=$(apt_private apt-cache depends linux-image-cloud-amd64 |
        awk '/Depends: linux-image-/ && !found { print $2; found = 1 }')
    [ -n "$package" ] || not_run "$RELEASE names no cloud kernel"
    fetch_alone "$package"
    version=${package#linux-image-}
    mv "$work/tree/boot/vmlinuz-$version" "$cache/vmlinuz"
    rm -rf "$cache/modules"
    mkdir "$cache/modules"
    local number=10
    for module in "${MODULES[@]}"; do
        find "$work/tree" -name "$module.ko.xz" -exec "$cache/busybox" xzcat {} + \
            >"$cache/modules/$number-$module.ko"
        [ -s "$cache/modules/$number-$module.ko" ] || { say "$package has no $module"; exit 1; }
        number=$((number + 1))
    done
    echo "$version" >"$cache/kernel-version"
}

make_qemu() {
    fetch "$RELEASE-backports" qemu-system-x86
    rm -rf "$cache/qemu"
    mv "$work/tree" "$cache/qemu"
    install -m 755 "$wrapper" "$cache/qemu-system-x86_64"
    "$cache/qemu-system-x86_64" -device help | grep '"vfio-user-pci"' >/dev/null ||
        not_run "this QEMU has no vfio-user-pci: $("$cache/qemu-system-x86_64" --version | sed -n 1p)"
}

finished() { [ "$(cat "$cache/$1.finished" 2>/dev/null)" = "$recipe" ]; }

# step NAME: make_NAME, if it has not been finished by this very script.
step() {
    if finished "$1"; then
        return
    fi
    rm -rf "$cache/$1.finished" "$work"
    mkdir "$work"
    say "preparing $1"
    "make_$1"
    rm -rf "$work"
    echo "$recipe" >"$cache/$1.finished"
}

all_finished() { finished busybox && finished kernel && finished qemu; }

if all_finished; then
    exit 0
fi
check_machine
exec 9>"$cache/lock"
flock 9
if ! all_finished; then
    index
    # The kernel's modules are unpacked by busybox.
    step busybox
    step kernel
    step qemu
    rm -rf "$cache/apt"
fi
say "ready: $("$cache/qemu-system-x86_64" --version | sed -n 1p), Linux $(cat "$cache/kernel-version")"
