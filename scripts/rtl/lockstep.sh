#!/usr/bin/env bash
# lockstep.sh NETLISTS: the model of the window and the netlists of that folder, step by step.
#
# FARSIDE_RTL_CYCLES says how many cycles each runs, FARSIDE_RTL_NETLIST which one, if not all of them.
set -euo pipefail
netlists=$(realpath "$1")
cd "$(dirname "$0")/../.."
# With the features that the workspace's tests have: nothing is built twice.
FARSIDE_RTL_NETLISTS=$netlists exec cargo test --locked --quiet --workspace --test rtl -- --ignored --nocapture \
    model_and_vhdl_answer_the_same
