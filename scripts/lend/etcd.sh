#!/usr/bin/env bash
# etcd.sh: hosts that find each other by three nodes of the distribution's etcd, each host and each node in a
# network namespace. Borrowers take cards of two lenders together, again and again, while etcd's leader is
# cut off, then two of three nodes, and after that. No card is held twice, a lease that runs goes on, and what
# the hosts know of each other is right again afterwards.
#
# Takes the farside to use. Exit codes: 0 all passed, 1 something failed, 77 it was not run.
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly NOT_RUN=77
readonly NODES="e1 e2 e3" HOSTS="a b c d"
farside=$(realpath "${1:-target/debug/farside}")
# Short: sockets are in it.
work=$(mktemp -d /tmp/fsetcd-XXXXXX)
tag=$$

say() { printf '%s\n' "$*"; }
fail() {
    say "etcd: $*" >&2
    for host in $HOSTS; do
        tail -n 4 "$work/$host/run/lend.log" 2>/dev/null | sed "s/^/  $host: /" >&2 || true
    done
    for node in $NODES; do tail -n 3 "$work/$node.log" 2>/dev/null | sed "s/^/  $node: /" >&2 || true; done
    exit 1
}
not_run() {
    say "lend: NOT RUN: etcd: $*" >&2
    exit "$NOT_RUN"
}

# shellcheck source=../packages.sh
source scripts/packages.sh
# shellcheck source=etcd-server.sh
source scripts/lend/etcd-server.sh

processes() { grep -lszx -- "LEND_TEST_TAG=$work" /proc/[0-9]*/environ | cut -d/ -f3 || true; }
clean() {
    local left
    # Those that borrow again and again.
    # shellcheck disable=SC2046
    kill $(jobs -p) 2>/dev/null || true
    left=$(processes)
    # One that has ended meanwhile is no matter.
    # shellcheck disable=SC2086
    [ -z "$left" ] || kill -KILL $left 2>/dev/null || true
    wait 2>/dev/null || true
    for place in s $NODES $HOSTS; do ip netns delete "fs$tag$place" 2>/dev/null || true; done
    rm -rf "$work"
}
trap clean EXIT

ip netns add "fs${tag}s" 2>/dev/null || not_run "this user may not make network namespaces; root may"
server=$(etcd_server) ||
    not_run "no etcd-server can be had: apt-get download it into target/etcd, and dpkg-deb -x it there"

on() {
    local place=$1
    shift
    LEND_TEST_TAG=$work FARSIDE_LEND_HOME=$work/$place ip netns exec "fs$tag$place" "$@"
}

# One switch, and everybody at it.
ip -n "fs${tag}s" link add switch type bridge
ip -n "fs${tag}s" link set switch up
number=0
for place in $NODES $HOSTS; do
    number=$((number + 1))
    ip netns add "fs$tag$place"
    ip -n "fs${tag}s" link add name "to-$place" type veth peer name net netns "fs$tag$place"
    ip -n "fs${tag}s" link set "to-$place" master switch up
    ip -n "fs$tag$place" address add "10.77.0.$number/24" dev net
    ip -n "fs$tag$place" link set net up
    ip -n "fs$tag$place" link set lo up
done
cut_off() { ip -n "fs${tag}s" link set "to-$1" down; }
mend() { ip -n "fs${tag}s" link set "to-$1" up; }

cluster=e1=http://10.77.0.1:2380,e2=http://10.77.0.2:2380,e3=http://10.77.0.3:2380
number=0
for node in $NODES; do
    number=$((number + 1))
    place=http://10.77.0.$number
    on "$node" "$server" --name "$node" --data-dir "$work/$node.data" --log-level info --logger zap \
        --initial-cluster "$cluster" --initial-advertise-peer-urls "$place:2380" \
        --listen-peer-urls "$place:2380" --listen-client-urls "$place:2379,http://127.0.0.1:2379" \
        --advertise-client-urls "$place:2379" >"$work/$node.log" 2>&1 &
done

# until WHAT COMMAND...: waits for it, 15 s at most.
until_so() {
    local what=$1
    shift
    for _ in $(seq 150); do
        if "$@" >/dev/null 2>&1; then return; fi
        sleep 0.1
    done
    fail "after 15 s: $what"
}

for host in $HOSTS; do
    mkdir -p "$work/$host"
    cat >"$work/$host/lend.toml" <<TOML
version = 1
plain-networks = ["10.77.0.0/24"]
[registry]
kind = "etcd"
endpoints = ["http://10.77.0.1:2379", "http://10.77.0.2:2379", "http://10.77.0.3:2379"]
TOML
done
token() { sed -n 's/^  "token": "\(.*\)".*$/\1/p'; }
for host in a b; do
    on "$host" "$farside" card serve "$work/card-$host" >"$work/card-$host.log" 2>&1 &
    until_so "a card is served" test -S "$work/card-$host/status.sock"
done
up() { # up HOST ADDRESS
    on "$1" "$farside" lend up --listen "$2:7301" --device "card0=$work/card-$1" --lease 2 --name "$1" --json
}
joined=$(up a 10.77.0.4)
# The daemon of one runs before it joins, long enough to hear of the others: they are no members of its own group.
on d "$farside" who >/dev/null
sleep 3
for host in b c d; do
    on "$host" "$farside" join 10.77.0.4:7301 "$(token <<<"$joined")" --name "$host" >/dev/null
    joined=$(on a "$farside" lend invite --json)
done
up b 10.77.0.5 >/dev/null
sees() { # sees HOST CARD...
    local listed
    listed=$(on "$1" "$farside" available) || return 1
    shift
    for card in "$@"; do grep -q "^$card " <<<"$listed" || return 1; done
}
for host in c d; do until_so "$host sees both lenders" sees "$host" card0@a card0@b; done

# What a program does that has both cards: nobody else may.
cat >"$work/witness" <<WITNESS
#!/bin/sh
for card in a b; do mkdir "$work/held-\$card" || echo "card0@\$card is held twice" >>"$work/twice"; done
sleep 0.1
rmdir "$work/held-a" "$work/held-b"
echo >>"$work/borrowed-\$1"
WITNESS
chmod +x "$work/witness"
: >"$work/twice"
borrow_again_and_again() { # HOST CARD...
    local host=$1
    shift
    while [ ! -e "$work/enough" ]; do
        on "$host" "$farside" borrow "$@" --wait 20 -- "$work/witness" "$host" >/dev/null \
            2>>"$work/$host.said" || sleep 0.1
    done
}
borrow_again_and_again c card0@a card0@b &
c=$!
borrow_again_and_again d any --count 2 &
d=$!
count() { cat "$work/borrowed-c" "$work/borrowed-d" 2>/dev/null | wc -l; }
each_borrows() { # each_borrows WHEN: both borrow, from here on
    local before_c before_d
    before_c=$(wc -l <"$work/borrowed-c") before_d=$(wc -l <"$work/borrowed-d")
    more() {
        [ "$(wc -l <"$work/borrowed-c")" -gt $((before_c + 1)) ] && [ "$(wc -l <"$work/borrowed-d")" -gt $((before_d + 1)) ]
    }
    until_so "both borrow $1" more
    say "etcd: both borrow $1: $(count) times until now"
}
touch "$work/borrowed-c" "$work/borrowed-d"
each_borrows "with all of etcd"

# Whoever became leader in the latest term.
leader() {
    local node
    for node in $NODES; do
        sed -n "s/.* became leader at term \\([0-9]*\\).*/\\1 $node/p" "$work/$node.log"
    done | sort -n | tail -n 1 | cut -d" " -f2
}
first=$(leader)
[ -n "$first" ] || fail "etcd has no leader"
cut_off "$first"
each_borrows "with the leader, $first, cut off"

other=$(for node in $NODES; do [ "$node" = "$first" ] || echo "$node"; done | head -n 1)
cut_off "$other"
said() { on c "$farside" who --json | grep -q "has not answered"; }
until_so "c says that etcd does not answer" said
each_borrows "with two of three nodes cut off"

touch "$work/enough"
wait "$c" "$d"
# It runs longer than its lease does, without etcd.
on c "$farside" borrow card0@a card0@b -- sleep 12 2>"$work/c.said" &
holds=$!
lent() { [ "$(on "$1" "$farside" available | grep -c "^card0@.* lent ")" -eq "$2" ]; }
until_so "c has both cards" lent c 2
# Who waits for both while etcd comes and goes is told in time, and has neither.
mend "$other"
began=$SECONDS
on d "$farside" borrow any --count 2 --wait 5 -- true 2>"$work/d.said" &
waits=$!
sleep 2
cut_off "$other"
if wait "$waits"; then fail "d borrowed what c has"; fi
[ $((SECONDS - began)) -le 8 ] || fail "d was told after $((SECONDS - began)) s, not 5"
# By its own daemon when its time is over, or by a lender that is asked for none.
grep -qE "not served within the time|is with root on c" "$work/d.said" || fail "d is not told why: $(cat "$work/d.said")"
wait "$holds" || fail "a lease did not go on without etcd: $(cat "$work/c.said")"
until_so "both cards are free" lent c 0
say "etcd: a lease went on without it, and who waited in vain was told in time"
mend "$other"
mend "$first"
heard() { ! on c "$farside" who --json | grep -q "has not answered"; }
until_so "c hears etcd again" heard

# What is told only now is known to others: B dies, and C has it from etcd alone what B lent.
sleep 1
left=$(grep -lszx -- "FARSIDE_LEND_HOME=$work/b" /proc/[0-9]*/environ | cut -d/ -f3 || true)
[ -n "$left" ] || fail "b has no daemon"
# shellcheck disable=SC2086
kill -STOP $left
known() { on c "$farside" available --json | tr -d ' \n' | grep -q '"name":"card0".*"host":"b".*\|"host":"b".*"name":"card0".*"heard_ns":[1-9]'; }
until_so "c knows from etcd what b lent" known
# shellcheck disable=SC2086
kill -CONT $left
until_so "all is seen again" sees d card0@a card0@b

[ ! -s "$work/twice" ] || fail "$(head -n 3 "$work/twice")"
say "etcd: both lenders' cards were borrowed together $(count) times, none held twice"
