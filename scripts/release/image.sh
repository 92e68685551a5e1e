#!/usr/bin/env bash
# image.sh: an OCI image of the command, from the Debian package and the packages of the distribution that it needs.
# No daemon, no base image: what is in it are the files of these packages. deb.sh comes before.
# Exit codes: 0 it is in target/release-files, 1 it cannot be built, 77 what it needs cannot be had here.
set -euo pipefail
cd "$(dirname "$0")/../.."

# shellcheck source=common.sh
source scripts/release/common.sh

# Of the program's dynamic section, and what has the licence of the second.
packages_of_base=(libc6 libgcc-s1 "$(apt-cache depends libgcc-s1 | sed -n 's/.*Depends: \(gcc-.*-base\)$/\1/p')")
readonly packages_of_base
readonly base=$WORK/image/base farside=$WORK/image/farside packages=$WORK/image/packages
rm -rf "$WORK/image"
mkdir -p "$base" "$farside" "$packages"

(cd "$packages" && apt-get download -qq "${packages_of_base[@]}" 2>"$WORK/image/said") ||
    not_run "apt-get cannot download ${packages_of_base[*]}: $(tail -n 1 "$WORK/image/said")"

# unpack PACKAGE ROOT: what a program needs of it, its licence, and a record for those who look which versions are in an image.
unpack() {
    local file=$1 root=$2 name
    name=$(dpkg-deb --field "$file" Package)
    dpkg-deb --fsys-tarfile "$file" | tar -x -C "$root" --no-same-owner --wildcards --exclude='*/gconv' \
        --exclude='./usr/share/man' --exclude='./usr/share/lintian' --exclude='./usr/lib/systemd' --exclude='./lib/systemd' \
        --exclude='*/changelog*.gz' --exclude='*/NEWS*.gz'
    install -d "$root/var/lib/dpkg/status.d"
    dpkg-deb --field "$file" >"$root/var/lib/dpkg/status.d/$name"
}
for file in "$packages"/*.deb; do unpack "$file" "$base"; done
unpack "$FILES/farside_${VERSION}_amd64.deb" "$farside"
install -d "$base/etc"
install -d -m 1777 "$base/tmp"
printf 'root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n' >"$base/etc/passwd"
printf 'root:x:0:\nnogroup:x:65534:\n' >"$base/etc/group"
# The mode of a folder is that of the one who builds, otherwise.
find "$base" "$farside" -type d ! -path "$base/tmp" -exec chmod 755 {} +
python3 scripts/release/image.py "$base" "$farside" --out "$FILES/farside-$VERSION.oci.tar" --name farside --version "$VERSION"
