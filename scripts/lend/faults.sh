#!/usr/bin/env bash
# faults.sh [--all]: kills, stops, cuts off and slows every process of a lease at its named steps, in network
# namespaces; leases over a cable that loses and reorders packets; floods of callers. Of the steps a sample that
# takes a minute, as `make test` does; with --all everything, as `make soak` does.
#
# FARSIDE_SEED chooses the sample, FARSIDE_SECONDS how long it is. Exit codes: 0 all passed, 1 something failed, 77
# it was not run, because there can be no namespaces here.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly NOT_RUN=77
not_run() {
    echo "lend: NOT RUN: $*" >&2
    exit "$NOT_RUN"
}

for needed in ip tc; do
    command -v "$needed" >/dev/null || not_run "$needed is missing: sudo apt-get install iproute2"
done
probe=fsprobe$$
ip netns add "$probe" 2>/dev/null || not_run "this user may not make network namespaces; root may"
ip netns delete "$probe"

case ${1:-} in
    "") but=every_fault_at_every_step_of_a_lease ;;
    --all) but=a_sample_of_the_faults_at_the_steps_of_a_lease ;;
    *) echo "faults.sh: $1 is no option; --all is" >&2 && exit 2 ;;
esac
# With all packages, as the other tests were built: nothing is built again.
cargo test --locked --workspace --test lend_faults -- --ignored --nocapture --skip "$but"
