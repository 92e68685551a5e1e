#!/usr/bin/env bash
# test.sh: a Farside card in a stock virtual machine.
#
#   edu          farside-live's VFIO code on a device of QEMU's own, behind an emulated IOMMU
#   pci          the card through vfio-user-pci: registers, card memory, DMA, MSI-X, without any driver
#   vfio         the card bound to vfio-pci behind an emulated IOMMU: the path for silicon
#   conformance  the same, and the suite that every card must pass
#   program      the same, and a whole Farside program, whose card is pulled out and comes back
#   borrowed     a vfio-user device that is no card, lent by one daemon and borrowed of it by another
#
# Arguments are boots to run; without any, all of them. Prints a line per boot: "ok", "FAILED" or "NOT
# RUN". Exit codes: 0 all passed, 1 something failed, 77 nothing was run, because QEMU cannot be had here.
# FARSIDE_QEMU_CACHE names the folder for QEMU (target/qemu), FARSIDE_QEMU_LOGS one for the logs,
# FARSIDE_BIN a farside command that serves the card, instead of one built for the test.
set -euo pipefail
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"

cd "$repository"
here=scripts/qemu
readonly here
readonly BOOTS="edu pci vfio conformance program borrowed"
# Less than the program of the last boot uses, so that pages are evicted.
readonly CARD_MEMORY=4M
readonly CARD_STARTS_WITHIN_S=20
# Six seconds on an idle machine, the last two twenty.
readonly BOOT_LIMIT_S=180
readonly GUEST=target/guest/x86_64-unknown-linux-gnu/debug/farside-guest
readonly BUILT=target/debug/farside
readonly GPIO=target/debug/examples/gpio

scratch=$(mktemp -d)
readonly scratch
logs=${FARSIDE_QEMU_LOGS:-$scratch/logs}
readonly logs
card=
clean_up() {
    stop_card
    stop_hosts
    rm -rf "$scratch"
}
trap clean_up EXIT

# The two that know how a card is served.
serve_card() { exec "${FARSIDE_BIN:-$BUILT}" card serve "$scratch/card" --memory "$CARD_MEMORY" --functions 1; }
readonly SOCKET=$scratch/card/fn0.sock

# A card of its own for each boot, so that none finds what another has left.
start_card() {
    rm -rf "$scratch/card"
    serve_card </dev/null >"$logs/card.log" 2>&1 &
    card=$!
    await_served "$SOCKET" card
}

# Another device takes the card's place.
start_gpio() {
    "$GPIO" "$scratch/gpio.sock" </dev/null >"$logs/gpio.log" 2>&1 &
    card=$!
    await_served "$scratch/gpio.sock" gpio
}

# await_served SOCKET NAME
await_served() {
    local deadline=$((SECONDS + CARD_STARTS_WITHIN_S))
    until [ -S "$1" ]; do
        if ! kill -0 "$card" 2>/dev/null || [ "$SECONDS" -ge "$deadline" ]; then
            say "no $2 is served; the end of its log:"
            tail -n 20 "$logs/$2.log" >&2
            return 1
        fi
        sleep 0.05
    done
}

stop_card() {
    [ -n "$card" ] || return 0
    kill "$card" 2>/dev/null || true
    # One that does not end when it is asked to is ended.
    timeout 10 tail --pid="$card" -f /dev/null || kill -9 "$card" 2>/dev/null || true
    wait "$card" 2>/dev/null || true
    card=
}

# as_host NAME COMMAND...: a command of farside on a host of its own, which is a folder and a daemon.
as_host() {
    local host=$1
    shift
    FARSIDE_LEND_HOME=$scratch/$host "${FARSIDE_BIN:-$BUILT}" "$@"
}

stop_hosts() {
    local left
    # Processes come and go meanwhile.
    left=$(grep -lszx -e "FARSIDE_LEND_HOME=$scratch/a" -e "FARSIDE_LEND_HOME=$scratch/b" \
        /proc/[0-9]*/environ | cut -d/ -f3 || true)
    # shellcheck disable=SC2086 # each is a word
    [ -z "$left" ] || kill -KILL $left 2>/dev/null || true
}

boot() {
    local mode=$1
    shift
    "$here/boot.sh" --log "$logs/$mode" --limit "$BOOT_LIMIT_S" "$@" "$GUEST" "$mode"
}

run_edu() { boot edu --iommu --device edu; }
run_pci() { start_card && boot pci --socket "$SOCKET"; }
run_vfio() { start_card && boot vfio --iommu --socket "$SOCKET"; }
run_conformance() { start_card && boot conformance --iommu --socket "$SOCKET"; }
run_program() { start_card && boot program --iommu --socket "$SOCKET"; }
run_borrowed() {
    local up address token
    start_gpio || return
    up=$(as_host a lend up --listen 127.0.0.1:0 --device "gpio0=$scratch/gpio.sock" --name a --json) || return
    address=$(sed -n 's/^  "address": "\(.*\)",$/\1/p' <<<"$up")
    token=$(sed -n 's/^  "token": "\(.*\)".*$/\1/p' <<<"$up")
    as_host b join "$address" "$token" --name b || return
    # shellcheck disable=SC2016 # where the device is, is known there
    as_host b borrow gpio0@a --wait 20 -- bash -c 'exec "$0" --socket "$FARSIDE_DEVICES" "$@"' \
        "$here/boot.sh" --log "$logs/borrowed" --limit "$BOOT_LIMIT_S" --iommu "$GUEST" gpio
}

build() {
    if [ -z "${FARSIDE_BIN:-}" ]; then
        cargo build --locked -p farside-cli --bin farside || return
    fi
    cargo build --locked -p farside-vfio-user --example gpio || return
    (cd guest && cargo build --locked)
}

result() { printf '%-8s qemu %s%s\n' "$1" "$2" "${3:+ ($3)}"; }

# end_all VERDICT WHY CODE: the same for every boot.
end_all() {
    local mode
    for mode in "${boots[@]}"; do
        result "$1" "$mode" "$2"
    done
    exit "$3"
}

read -ra boots <<<"${*:-$BOOTS}"
for mode in "${boots[@]}"; do
    [[ " $BOOTS " == *" $mode "* ]] || usage
done
mkdir -p "$logs"
code=0
"$here/prepare.sh" || code=$?
case $code in
    0) ;;
    "$NOT_RUN") end_all 'NOT RUN' "QEMU cannot be had here" "$NOT_RUN" ;;
    *) end_all FAILED "QEMU could not be prepared" 1 ;;
esac
build || end_all FAILED "the programs could not be built" 1

failed=0
for mode in "${boots[@]}"; do
    echo "== qemu $mode"
    start=$SECONDS
    if "run_$mode"; then
        result ok "$mode" "$((SECONDS - start)) s"
    else
        result FAILED "$mode"
        failed=1
    fi
    stop_card
    stop_hosts
done
exit "$failed"
