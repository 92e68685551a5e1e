#!/usr/bin/env bash
# install.sh PREFIX [FOLDER]: libfarside for C and C++ into PREFIX/lib and PREFIX/include, with files for pkg-config and CMake.
#
# FOLDER has libfarside_c.so and libfarside_c.a already; without it they are built, optimised. DESTDIR goes before PREFIX where files
# are put, and into none of them; LIBDIR is where libraries go below PREFIX (lib).
set -euo pipefail
prefix=$(realpath -m "${1:?where to install: scripts/c/install.sh PREFIX}")
libdir=${LIBDIR:-lib}
readonly root=${DESTDIR:-}$prefix
built=${2:+$(realpath "$2")}
cd "$(dirname "$0")/../.."

# What the static library needs besides, as `rustc --print native-static-libs` says for Linux with glibc.
readonly STATIC_LIBS=(gcc_s util rt pthread m dl c)
abi=$(sed -n 's/^#define FARSIDE_ABI //p' include/farside.h)
version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
url=$(sed -n '/^\[workspace.package\]/,/^$/s/^repository = "\(.*\)"/\1/p' Cargo.toml)
readonly abi version url

if [ -z "$built" ]; then
    cargo build --release --locked -p farside-c
    built=$(realpath "${CARGO_TARGET_DIR:-target}/release")
fi

readonly lib=$root/$libdir
install -d "$root/include" "$lib"/{pkgconfig,cmake/Farside}
install -m 644 include/farside{.h,.hpp,-kernel.h,-scheme.h} "$root/include"
install -m 755 "$built/libfarside_c.so" "$lib/libfarside.so.$abi"
ln -sf "libfarside.so.$abi" "$lib/libfarside.so"
install -m 644 "$built/libfarside_c.a" "$lib/libfarside.a"

# fill TEMPLATE FILE
fill() {
    local libs list minor=${version#*.}
    libs=$(printf -- '-l%s ' "${STATIC_LIBS[@]}")
    list=$(printf '%s;' "${STATIC_LIBS[@]}")
    sed -e "s|@prefix@|$prefix|" -e "s|@libdir@|$libdir|" -e "s|@up@|$(sed 's|[^/]*|..|g' <<<"$libdir")|" \
        -e "s|@version@|$version|" -e "s|@url@|$url|" -e "s|@abi@|$abi|" \
        -e "s|@major@|${version%%.*}|" -e "s|@minor@|${minor%%.*}|" \
        -e "s|@static_libs@|${libs% }|" -e "s|@static_list@|${list%;}|" "packaging/c/$1.in" >"$2"
}
fill farside.pc "$lib/pkgconfig/farside.pc"
fill FarsideConfig.cmake "$lib/cmake/Farside/FarsideConfig.cmake"
fill FarsideConfigVersion.cmake "$lib/cmake/Farside/FarsideConfigVersion.cmake"
echo "libfarside $version is in $root; PKG_CONFIG_PATH=$lib/pkgconfig finds it"
