#!/usr/bin/env bash
# lint.sh: whether rtl/ has the style of rtl/vsg.yml, and whether rtl/farside.core has every entity and its targets
# elaborate.
#
# Exit codes: 0 both, 1 not, with what and where.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=tools.sh
source scripts/rtl/tools.sh
readonly OUT=$RTL_TARGET/fusesoc
failed=0

vsg -c rtl/vsg.yml -f rtl/*.vhd || failed=1
vsg -c rtl/vsg.yml rtl/test/vsg.yml -f rtl/test/*.vhd || failed=1

if ! diff <(sed -n 's/^ *- \(.*\.vhd\)$/\1/p' rtl/farside.core) <(cd rtl && LC_ALL=C ls ./*.vhd | sed 's|^\./||'); then
    echo "rtl/farside.core: these are not its files (>: not listed, <: not there)"
    failed=1
fi
rm -rf "$OUT"
mkdir -p "$OUT"
root=$PWD
cd "$OUT"
for target in $(sed -n 's/^    toplevel: //p' "$root/rtl/farside.core"); do
    fusesoc --cores-root "$root/rtl" run --build-root "$OUT" --target "$target" farside:rtl:window ||
        { echo "rtl/farside.core: $target does not elaborate" && failed=1; }
done
exit "$failed"
