#!/usr/bin/env bash
# test.sh: libfarside as a program in C or C++ gets it: installed in a folder, found by pkg-config and by CMake, linked
# in both ways, with compilers that take warnings for errors.
#
# FARSIDE_C_LIBRARY names the folder with the libraries, if they are built already.
# Exit codes: 0 all passed, 1 something failed, 77 nothing was run, because what the tests need cannot be had here.
set -euo pipefail
cd "$(dirname "$0")/../.."

# shellcheck source=../packages.sh
source scripts/packages.sh
readonly NOT_RUN=77 LIMIT_S=60
say() { echo "c: $*" >&2; }
not_run() {
    say "NOT RUN: $*"
    exit "$NOT_RUN"
}
for tool in g++ cmake pkg-config; do
    command -v "$tool" >/dev/null || install_packages g++ cmake make pkg-config || not_run "there is no $tool"
done

scratch=$(mktemp -d)
readonly scratch
trap 'rm -rf "$scratch"' EXIT
if [ -z "${FARSIDE_C_LIBRARY:-}" ]; then
    cargo build --locked --quiet -p farside-c
    FARSIDE_C_LIBRARY=${CARGO_TARGET_DIR:-target}/debug
fi
readonly prefix=$scratch/prefix warnings=(-Wall -Wextra -Wpedantic -Wshadow -Werror)
scripts/c/install.sh "$prefix" "$FARSIDE_C_LIBRARY"
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig

# Nothing but what the header declares is seen of the library.
nm -D --defined-only "$prefix/lib/libfarside.so" | awk '{ print $3 }' | sort >"$scratch/exported"
sed -n 's/^[a-z].*\(farside_[a-z_]*\)(.*/\1/p' "$prefix/include/farside.h" | sort >"$scratch/declared"
diff "$scratch/declared" "$scratch/exported"

# flags NAME: of pkg-config, a word a line.
flags() { pkg-config "$@" farside | xargs -n 1; }
mapfile -t shared < <(flags --cflags --libs)
mapfile -t include < <(flags --cflags)
mapfile -t besides < <(flags --libs --static | grep -vx -e -lfarside)

# run PROGRAM
run() {
    echo "c: ${1##*/}"
    LD_LIBRARY_PATH=$prefix/lib timeout "$LIMIT_S" "$@" >"$scratch/said" || {
        cat "$scratch/said"
        return 1
    }
}

for source in examples/c/saxpy.c crates/c/tests/c/program.c; do
    name=$(basename "$source" .c)
    cc -std=gnu11 "${warnings[@]}" "$source" "${shared[@]}" -o "$scratch/$name"
    run "$scratch/$name"
    cc -std=gnu11 "${warnings[@]}" "$source" "${include[@]}" "$prefix/lib/libfarside.a" "${besides[@]}" \
        -o "$scratch/$name-static"
    run "$scratch/$name-static"
done
for standard in 17 20; do
    for source in examples/c/list.cpp crates/c/tests/c/refusals.cpp; do
        name=$(basename "$source" .cpp)-$standard
        g++ "-std=c++$standard" "${warnings[@]}" "$source" "${shared[@]}" -o "$scratch/$name"
        run "$scratch/$name"
    done
done
# The examples of the pages as they stand there.
for page in README.md docs/c.md; do
    program=$scratch/page-$(basename "$page" .md)
    {
        printf '%s\n' '#include <algorithm>' '#include <farside.hpp>' 'int main()' '{'
        # shellcheck disable=SC2016 # for sed
        sed -n '/^```cpp$/,/^```$/ { /^```/!p }' "$page"
        echo '}'
    } >"$program.cpp"
    grep -q 'farside::read' "$program.cpp" || {
        echo "c: $page has no example in C++" >&2
        exit 1
    }
    g++ -std=c++17 "${warnings[@]}" "$program.cpp" "${shared[@]}" -o "$program"
    run "$program"
done
cmake -S examples/c -B "$scratch/cmake" -DCMAKE_PREFIX_PATH="$prefix" >"$scratch/said" &&
    cmake --build "$scratch/cmake" >>"$scratch/said" || {
    cat "$scratch/said"
    exit 1
}
for name in saxpy list list_static; do run "$scratch/cmake/$name"; done
# As a package has it: put elsewhere first, and in the distribution's folder of libraries.
DESTDIR=$scratch/root LIBDIR=lib/$(cc -print-multiarch) scripts/c/install.sh /usr "$FARSIDE_C_LIBRARY" >"$scratch/said"
if grep -rI "$scratch" "$scratch/root"; then
    echo "c: what was installed names where it was put first" >&2
    exit 1
fi
cmake -S examples/c -B "$scratch/packaged" -DCMAKE_PREFIX_PATH="$scratch/root/usr" >"$scratch/said" &&
    cmake --build "$scratch/packaged" --target saxpy list_static >>"$scratch/said" || {
    cat "$scratch/said"
    exit 1
}
for name in saxpy list_static; do run "$scratch/packaged/$name"; done
# Another version is not taken for this one.
if cmake -S examples/c -B "$scratch/other" -DCMAKE_PREFIX_PATH="$prefix" -DFARSIDE_VERSION=0.2 >"$scratch/said" 2>&1; then
    echo "c: CMake has taken this version for 0.2" >&2
    exit 1
fi
grep -q "0.2" "$scratch/said"
echo "c: all passed"
