#!/usr/bin/env bash
# report.sh: the measurements of docs/rtl/performance.md and docs/reproduction.md: what a reader gets through translator
# and walker, the figures of the thesis's chapter 6 as data and drawings, and its Table 3.1.
#
# target/rtl/report gets points.csv, points.parquet and figure-6-N.svg and .png. Compares the tables with what the
# pages say. Exit codes: 0 what is promised was reached and is as written, 1 it was not, 77 the tools
# cannot be had here.
set -euo pipefail
cd "$(dirname "$0")/../.."
scripts/rtl/setup.sh drawing
# shellcheck source=tools.sh
source scripts/rtl/tools.sh
readonly OUT=$RTL_TARGET/report
mkdir -p "$OUT"

# measure PROGRAM TEST LOG: one of the measurements in a program of tests; what it prints goes to LOG.
measure() {
    cargo test --locked --quiet --workspace --test "$1" -- --ignored --nocapture "$2" >"$3" 2>&1 ||
        { cat "$3" >&2 && exit 1; }
}

# compare PAGE HEADER TABLE: the table in TABLE is the one of the page that begins with HEADER.
compare() {
    sed -n "/^| $2 /,/^\$/{/^|/p}" "$1" | diff - "$3" || { say "$1 has another table" && exit 1; }
}

scripts/rtl/netlists.sh rtl "$OUT/promised" report
export FARSIDE_RTL_NETLISTS=$OUT/promised
measure rtl a_reader_gets_what_is_promised "$OUT/promised.log"
grep -E '^(\||a miss)' "$OUT/promised.log"
grep '^|' "$OUT/promised.log" >"$OUT/promised.md"
compare docs/rtl/performance.md load "$OUT/promised.md"

# What adds readers, writers and the TLB of flexible length is timed in its bench.
"$TOOLS/python/bin/python" rtl/test/run.py --output-path "$OUT/bench" --minimal -p 1 "*tb_mmu_top*cycles of what is held*" \
    >"$OUT/bench.log" 2>&1 || { cat "$OUT/bench.log" >&2 && exit 1; }
miss=$(grep -rhom 1 'a miss of an idle MMU.*' "$OUT/bench/test_output" | sort -u)
echo "$miss"
[[ $miss =~ ([0-9]+)\ cycles\ to\ its\ place,\ ([0-9]+)\ to\ data ]]
grep -qF "through \`mmu_top\` | ≤ 79 / ≤ 150 | ${BASH_REMATCH[1]} / ${BASH_REMATCH[2]} " docs/rtl/performance.md ||
    { say "docs/rtl/performance.md says something else" && exit 1; }

measure techniques table_3_1_again "$OUT/techniques.log"
grep '^|' "$OUT/techniques.log" | tee "$OUT/techniques.md"
compare docs/reproduction.md trace "$OUT/techniques.md"

say "netlists for the figures of chapter 6: some minutes"
scripts/rtl/netlists.sh rtl "$OUT/chapter6" chapter6
export FARSIDE_RTL_NETLISTS=$OUT/chapter6 FARSIDE_RTL_POINTS=$OUT/points.csv
measure rtl chapter_6_again "$OUT/chapter6.log"
"$DRAWING/bin/python" scripts/rtl/draw.py "$OUT/points.csv" scripts/rtl/thesis/points.csv "$OUT"
for drawn in "$OUT"/points.csv "$OUT"/figure-6-?.svg; do
    cmp "$drawn" "docs/rtl/${drawn##*/}" || { say "docs/rtl/${drawn##*/} is another" && exit 1; }
done
say "drawn in ${OUT#"$PWD"/}"
