#!/usr/bin/env bash
# test.sh: the demonstration of lending, in two network namespaces, a sample of faults, etcd, and a published device.
#
# Installs iproute2 where it is missing. Its own results are checked by the programs that it runs; that a
# borrower which wakes too late is refused, by the script.
# Exit codes: 0 all passed, 1 something failed, 77 it was not run, because there can be no namespaces or no
# etcd here.
# FARSIDE_BIN names a farside command to use instead of the one that the tests were built with.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly NOT_RUN=77
bin=$(realpath -m "${FARSIDE_BIN:-${CARGO_TARGET_DIR:-target}/debug/farside}")
readonly bin

# shellcheck source=../packages.sh
source scripts/packages.sh
not_run() {
    echo "lend: NOT RUN: $*" >&2
    exit "$NOT_RUN"
}

command -v ip >/dev/null || install_packages iproute2 ||
    not_run "ip is missing: sudo apt-get install iproute2"
probe=fsprobe$$
ip netns add "$probe" 2>/dev/null || not_run "this user may not make network namespaces; root may"
ip netns delete "$probe"
[ -x "$bin" ] || cargo build --locked --quiet -p farside-cli --bin farside

said=$(scripts/lend/demo.sh "$bin")
echo "$said"
grep -q "^Two network namespaces" <<<"$said"
grep -q "^Done:" <<<"$said"

scripts/lend/faults.sh
scripts/lend/etcd.sh "$bin"
# A device that others have published, where it can be had.
if scripts/lend/samples.sh; then
    cargo test --locked --workspace --test lend -- samples
else
    echo "lend: NOT RUN: the published sample: scripts/lend/samples.sh cannot build it" >&2
fi
