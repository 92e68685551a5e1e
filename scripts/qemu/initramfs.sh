#!/usr/bin/env bash
# initramfs.sh CACHE PROGRAM OUT: packs the guest's files: busybox, modules, `init` and PROGRAM, which
# must be statically linked.
set -euo pipefail
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"

[ $# -eq 3 ] || usage
readonly cache=$1 program=$2 out=$3

root=$(mktemp -d)
readonly root
trap 'rm -rf "$root"' EXIT

mkdir -p "$root/bin" "$root/modules"
cp "$cache/busybox" "$root/bin/busybox"
cp "$cache"/modules/*.ko "$root/modules/"
install -m 755 "$(dirname "$0")/init" "$root/init"
install -m 755 "$program" "$root/bin/farside-guest"
(cd "$root" && find . | LC_ALL=C sort | "$cache/busybox" cpio -o -H newc -R 0:0) 2>/dev/null |
    "$cache/busybox" gzip -1 >"$out"
