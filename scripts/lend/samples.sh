#!/usr/bin/env bash
# Builds a device that others have published, for the tests that borrow it (crates/cli/tests/lend/samples.rs).
# It is no dependency of anything here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

install() {
    cargo install --locked --quiet --root target/samples --target-dir target/samples/build "$@"
}

install vfio_user@0.1.7 --example gpio
echo "built: $(ls target/samples/bin | tr '\n' ' ')"
