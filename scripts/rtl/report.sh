#!/usr/bin/env bash
# report.sh: what a reader gets through translator and walker, as the table of docs/rtl/performance.md.
#
# Compares the two. Exit codes: 0 what is promised was reached and is as written, 1 it was not, 77 the tools
# cannot be had here.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/rtl/setup.sh
# shellcheck source=tools.sh
source scripts/rtl/tools.sh

out=$RTL_TARGET/report
scripts/rtl/netlists.sh rtl "$out" report
FARSIDE_RTL_NETLISTS=$out cargo test --locked --quiet --workspace --test rtl -- --ignored --nocapture \
    a_reader_gets_what_is_promised >"$out/log" 2>&1 ||
    { cat "$out/log" >&2 && exit 1; }
grep -E '^(\||a miss)' "$out/log" | tee "$out/table.md"
# The other table of the page sets them beside what is asked for.
grep '^|' "$out/table.md" | diff <(sed -n '/^| load /,/^$/{/^|/p}' docs/rtl/performance.md) -
