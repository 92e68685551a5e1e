#!/usr/bin/env bash
# semver.sh [BASELINE]: what programs that use the crates will notice since the last release, by cargo-semver-checks. BASELINE is a
# commit to compare with instead of the last tag that is a version.
#
# Not of `make test`: the tool takes many minutes to build, and then builds the documentation of both.
# Exit codes: 0 nothing breaks that the version does not say, 1 something does, or there is no such commit, 77 there is nothing to compare with, or no tool.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly SEMVER_CHECKS=0.51.0
# Those that programs of others name: the rest come with them.
readonly CRATES=(farside farside-vfio-user)
# shellcheck source=common.sh
source scripts/release/common.sh

baseline=${1:-$(git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || true)}
if [ -z "$baseline" ]; then
    yesterday=$(git log -1 --before=1.day --format=%h)
    not_run "no release has been tagged (v*) that programs could depend on. What has changed for them since a commit:" \
        "make semver BASELINE=${yesterday:-$(git rev-list --max-parents=0 --abbrev-commit HEAD | tail -n 1)}"
fi
if ! git rev-parse --quiet --verify "$baseline^{commit}" >/dev/null; then
    say "there is no commit $baseline in this repository: git log --oneline lists them"
    exit 1
fi
readonly tool=$TARGET/release-cargo
if [ "$("$tool/bin/cargo-semver-checks" semver-checks --version 2>/dev/null)" != "cargo-semver-checks $SEMVER_CHECKS" ]; then
    may_install || not_run "cargo-semver-checks is missing, and FARSIDE_NO_INSTALL=1"
    say "building cargo-semver-checks, which takes some minutes"
    cargo install --quiet cargo-semver-checks --version "$SEMVER_CHECKS" --locked --root "$tool" --target-dir "$tool/build" ||
        not_run "cargo cannot install cargo-semver-checks"
    rm -rf "$tool/build"
fi
"$tool/bin/cargo-semver-checks" semver-checks --baseline-rev "$baseline" "${CRATES[@]/#/--package=}"
