#!/usr/bin/env bash
# deb.sh: Debian packages of the command and of the library for C and C++, by debhelper, from packaging/debian.
# Exit codes: 0 they are in target/release-files, 1 they cannot be built, 77 what builds them cannot be had here.
set -euo pipefail
cd "$(dirname "$0")/../.."

# shellcheck source=common.sh
source scripts/release/common.sh
need_packages dh debhelper dpkg-dev
need_packages help2man help2man
need_packages fakeroot fakeroot

readonly stage=$WORK/deb/farside-$VERSION built_into=$WORK/deb/farside-$VERSION/built
readonly built=$TARGET/dist
multiarch=$(dpkg-architecture -qDEB_HOST_MULTIARCH)

anywhere cargo build --profile dist --locked -p farside-cli -p farside-c --bin farside --lib
rm -rf "$WORK/deb"
mkdir -p "$stage/debian" "$built_into/man"
cp packaging/debian/* "$stage/debian/"

# The command, as a service's unit finds it.
install -D -t "$built_into/usr/bin" "$built/farside"
install -d "$built_into/lib/systemd/system"
for unit in packaging/*.service; do
    sed 's#/usr/local/bin/farside#/usr/bin/farside#' "$unit" >"$built_into/lib/systemd/system/${unit##*/}"
done
DESTDIR=$built_into LIBDIR=lib/$multiarch scripts/c/install.sh /usr "$built" >/dev/null

# page NAME WORDS...: the manual's page of a command, from its help.
page() {
    local name=$1
    shift
    help2man --no-info --version-string="$VERSION" --source="Farside $VERSION" --manual="Farside" \
        --name="$("$@" --help | sed '/^$/,$d; s/\.$//' | paste -s -d ' ')" "$*" |
        sed "s/^$* \\\\-/$name \\\\-/" >"$built_into/man/$name.1"
}
PATH=$built:$PATH
page farside farside
while read -r command; do
    page "farside-$command" farside "$command"
done < <(farside --help | sed -n '/^Commands:/,/^$/s/^  \([a-z][a-z]*\)  .*/\1/p' | grep -vx help)

for package in farside libfarside1 libfarside-dev; do
    install -m 644 -D -t "$built_into/usr/share/doc/$package" "$WORK/THIRD-PARTY.txt"
done
date=$(date --utc --rfc-email --date="@$SOURCE_DATE_EPOCH")
sed -n 's/^Maintainer: //p' packaging/debian/control | {
    read -r maintainer
    printf 'farside (%s) unstable; urgency=medium\n\n  * Farside %s: CHANGELOG.md has what is new.\n\n -- %s  %s\n' \
        "$VERSION" "$VERSION" "$maintainer" "$date"
} >"$stage/debian/changelog"
mkdir "$stage/debian/source"
echo "3.0 (native)" >"$stage/debian/source/format"

(cd "$stage" && dpkg-buildpackage --build=binary --no-sign --no-check-builddeps) >"$WORK/deb/log" 2>&1 || {
    cat "$WORK/deb/log" >&2
    exit 1
}
mkdir -p "$FILES"
mv "$WORK/deb/"*.deb "$FILES"
