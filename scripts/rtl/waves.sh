#!/usr/bin/env bash
# waves.sh [--check]: draws docs/rtl/*.wave.json (WaveDrom) as *.svg, or says which are not as drawn.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tools.sh
source scripts/rtl/tools.sh

code=0
for wave in docs/rtl/*.wave.json; do
    svg=${wave%.wave.json}.svg
    drawn=$svg
    [ "${1:-}" != --check ] || drawn=$RTL_TARGET/drawn.svg
    "$TOOLS/python/bin/wavedrompy" --input "$wave" --svg "$drawn"
    cmp "$drawn" "$svg" || code=1
done
exit "$code"
