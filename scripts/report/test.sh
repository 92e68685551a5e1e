#!/usr/bin/env bash
# test.sh [SCREENSHOTS]: pages of `farside report` in headless Chromium: that they open without an error in the console,
# draw within two seconds, tell what is under the mouse, and zoom, two runs together. Screenshots go to that folder, or
# target/report/screenshots. Then its traces for Perfetto, read by the messages of Perfetto's own package.
#
# Chromium is the distribution's package, Playwright drives it (a virtual environment in target/report, made once).
# Exit codes: 0 all passed, 1 something failed, 77 nothing was run, because what the tests need cannot be had here.
# FARSIDE_BIN names a farside command to use instead of one built for the test.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly NOT_RUN=77
readonly LIMIT_S=120
TARGET=$(realpath -m "${CARGO_TARGET_DIR:-target}")
readonly TARGET
readonly VENV=$TARGET/report/python
readonly SCREENSHOTS=${1:-$TARGET/report/screenshots}

# shellcheck source=../packages.sh
source scripts/packages.sh
say() { echo "report: $*" >&2; }
not_run() {
    say "NOT RUN: $*"
    exit "$NOT_RUN"
}

scratch=$(mktemp -d)
readonly scratch
trap 'rm -rf "$scratch"' EXIT

if ! command -v chromium >/dev/null && ! install_packages chromium; then
    not_run "Chromium is missing: sudo apt-get install chromium"
fi
mkdir -p "$TARGET/report"
if ! cmp -s scripts/report/requirements.txt "$VENV/requirements.txt"; then
    fetch_python "$VENV" -r scripts/report/requirements.txt
    cp scripts/report/requirements.txt "$VENV/requirements.txt"
fi
if [ -z "${FARSIDE_BIN:-}" ]; then
    cargo build --locked --quiet -p farside-cli --bin farside
fi
bin=$(realpath "${FARSIDE_BIN:-$TARGET/debug/farside}")

log() { "$bin" sim --workload st --bytes 1MB --scheme "$1" --quiet --events "$scratch/$1.parquet" >/dev/null; }
"$bin" demo --bundled --on-demand --quiet --events "$scratch/demo.parquet"
log on-touch
log grit
"$bin" report "$scratch/demo.parquet" -o "$scratch/one.html" >/dev/null
"$bin" report "$scratch/on-touch.parquet" "$scratch/grit.parquet" -o "$scratch/two.html" >/dev/null
look() { timeout "$LIMIT_S" "$VENV/bin/python" scripts/report/look.py "$1" "$(command -v chromium)" "$2" "$3"; }
look "$scratch/one.html" "$SCREENSHOTS/one" 1
look "$scratch/two.html" "$SCREENSHOTS/two" 2

trace() { "$bin" report "${@:2}" --json --perfetto "$scratch/$1.pftrace" >"$scratch/$1.json"; }
trace live "$scratch/demo.parquet"
trace simulated "$scratch/on-touch.parquet" "$scratch/grit.parquet"
for of in live simulated; do
    "$VENV/bin/python" scripts/report/check_trace.py "$scratch/$of.pftrace" "$scratch/$of.json"
done
