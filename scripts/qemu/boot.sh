#!/usr/bin/env bash
# boot.sh [OPTION...] PROGRAM [ARGUMENT...]: boots a guest that runs PROGRAM, and tells what it found.
#
#   --cache DIR      where prepare.sh has put QEMU (target/qemu of the repository)
#   --log DIR        keep the logs in DIR: console.log (kernel and program), results.log, qemu.log
#   --socket PATH    attach the vfio-user device served at PATH; may be repeated
#   --device SPEC    attach another device of QEMU's, such as edu; may be repeated
#   --iommu          with an Intel IOMMU, so that VFIO works in the guest
#   --kernel WORDS   more words for the kernel's command line
#   --memory MIB     the guest's memory (512)
#   --limit SECONDS  the longest the guest may run (120)
#
# PROGRAM is statically linked and prints to its standard output "FARSIDE-GUEST ok NAME" or
# "FARSIDE-GUEST FAILED NAME: WHY" or "FARSIDE-GUEST not run NAME: WHY" for each check and "FARSIDE-GUEST done" at its end. The exit code is 0
# only if it came to its end, passed something and failed nothing.
#
# The guest has no network and no disk; its memory is a shared memory file, which a vfio-user server
# needs to reach it. Everything is emulated, so it runs where there is no KVM.
set -euo pipefail
# shellcheck source=common.sh
source "$(dirname "$0")/common.sh"

readonly LOG_LINES=40

# attach SOCKET: a vfio-user device below a root port of its own. The port can reset what is below it, so
# the guest's kernel can reset a device that has no reset of its own.
attach() {
    local port=port${#devices[@]}
    devices+=(-device "pcie-root-port,id=$port,chassis=${#devices[@]}"
        -device "{\"driver\":\"vfio-user-pci\",\"bus\":\"$port\",\"socket\":{\"path\":\"$1\",\"type\":\"unix\"}}")
}

cache=$DEFAULT_CACHE log='' words='' memory=512 limit=120
devices=()
# An IOMMU has to come before the devices behind it.
first=()
while [ $# -gt 0 ]; do
    case $1 in
        --cache | --log | --socket | --device | --kernel | --memory | --limit)
            [ $# -ge 2 ] || usage
            case $1 in
                --cache) cache=$2 ;;
                --log) log=$2 ;;
                --socket) attach "$2" ;;
                --device) devices+=(-device "$2") ;;
                --kernel) words=$2 ;;
                --memory) memory=$2 ;;
                --limit) limit=$2 ;;
            esac
            shift 2
            ;;
        --iommu)
            first=(-device "intel-iommu,intremap=on,caching-mode=on")
            shift
            ;;
        -*) usage ;;
        *) break ;;
    esac
done
[ $# -ge 1 ] || usage
readonly program=$1
shift

[ -e "$cache/qemu.finished" ] || not_run "there is no QEMU in $cache: run scripts/qemu/prepare.sh"
if [ -z "$log" ]; then
    log=$(mktemp -d)
    trap 'rm -rf "$log"' EXIT
fi
mkdir -p "$log"
rm -f "$log"/{console,results,qemu}.log
"$(dirname "$0")/initramfs.sh" "$cache" "$program" "$log/initramfs.gz"

# no_timer_check: a guest with interrupt remapping that has to wait for its processor can panic when it
# tests its timer.
boot() {
    timeout --foreground --kill-after=5 "$limit" "$cache/qemu-system-x86_64" \
        -accel tcg -cpu max -smp 2 -m "$memory" \
        -object "memory-backend-memfd,id=ram,size=${memory}M,share=on" \
        -machine q35,memory-backend=ram \
        -nodefaults -no-user-config -no-reboot -display none -nic none \
        -serial "file:$log/console.log" -serial "file:$log/results.log" \
        -kernel "$cache/vmlinuz" -initrd "$log/initramfs.gz" \
        -append "console=ttyS0 quiet panic=-1 no_timer_check $words -- $*" \
        "${first[@]}" "${devices[@]}" </dev/null >"$log/qemu.log" 2>&1
}

# ended_well CODE: judges the results; the code is QEMU's.
ended_well() {
    if [ "$1" -eq 124 ] || [ "$1" -eq 137 ]; then
        say "FAILED: the guest was stopped after $limit s"
    elif [ "$1" -ne 0 ]; then
        say "FAILED: QEMU ended with code $1"
    elif ! grep -qx 'FARSIDE-GUEST done' "$log/results.txt"; then
        say "FAILED: the guest program did not come to its end"
    elif ! grep -q '^FARSIDE-GUEST ok ' "$log/results.txt"; then
        say "FAILED: the guest program checked nothing"
    elif grep -q '^FARSIDE-GUEST FAILED ' "$log/results.txt"; then
        say "FAILED: see the lines above"
    else
        return 0
    fi
    return 1
}

code=0
boot "$@" || code=$?
tr -d '\r' <"$log/results.log" >"$log/results.txt" 2>/dev/null || : >"$log/results.txt"
sed -n 's/^FARSIDE-GUEST \(ok\|FAILED\|not run\) /\1 /p' "$log/results.txt"
if ! ended_well "$code"; then
    for part in qemu console; do
        say "the end of $part.log:"
        tail -n "$LOG_LINES" "$log/$part.log" >&2 || true
    done
    exit 1
fi
