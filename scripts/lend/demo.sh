#!/usr/bin/env bash
# A card of one machine, used in another, and given back: three hosts, as network namespaces where this
# user may make them, else as three daemons on the loopback interface. Takes the farside to use.
set -euo pipefail

farside=$(realpath "$1")
work=$(mktemp -d /tmp/farside-lend-XXXXXX)
# Of namespaces and interfaces, which are the machine's.
tag=$$
address=127.0.0.1
namespaces=no

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
fail() {
  echo "demo-lend: $*" >&2
  for host in a b c; do
    tail -n 5 "$work/$host/run/lend.log" 2>/dev/null | sed "s/^/  $host: /" >&2 || true
  done
  exit 1
}

# Runs a command on a host: its own daemon, and its own network where there is one.
on() {
  local host=$1
  shift
  local enter=()
  if [ "$namespaces" = yes ]; then
    # B and C are machines of one network, A is across it.
    local place=$host
    [ "$host" = c ] && place=b
    enter=(ip netns exec "fs$tag$place")
  fi
  FARSIDE_LEND_HOME=$work/$host "${enter[@]}" "$@"
}

# The processes of a host, of whatever kind.
processes_of() {
  # Processes come and go meanwhile.
  grep -lszx -- "FARSIDE_LEND_HOME=$work/$1" /proc/[0-9]*/environ | cut -d/ -f3 || true
}

signal() {
  local processes
  processes=$(processes_of "$2")
  # One that has ended meanwhile is no matter.
  [ -z "$processes" ] || kill "-$1" $processes 2>/dev/null || true
}

clean_up() {
  for host in a b c; do
    signal KILL "$host"
  done
  if [ "$namespaces" = yes ]; then
    ip netns delete "fs${tag}a" || true
    ip netns delete "fs${tag}b" || true
  fi
  rm -rf "$work"
}
trap clean_up EXIT

if ip netns add "fs${tag}a" 2>/dev/null; then
  namespaces=yes
  address=10.77.0.1
  ip netns add "fs${tag}b"
  ip link add "va$tag" netns "fs${tag}a" type veth peer name "vb$tag" netns "fs${tag}b"
  ip -n "fs${tag}a" address add 10.77.0.1/24 dev "va$tag"
  ip -n "fs${tag}b" address add 10.77.0.2/24 dev "vb$tag"
  for host in a b; do
    ip -n "fs$tag$host" link set lo up
    ip -n "fs$tag$host" link set "v$host$tag" up
  done
  echo "Two network namespaces, with a cable between them: A lends, B and C borrow."
else
  echo "This user may make no network namespaces (root may): A, B and C share the loopback interface."
fi

say "A serves a card and lends it"
on a "$farside" card serve "$work/card0" 2>"$work/card.log" &
for _ in $(seq 100); do
  [ -S "$work/card0/status.sock" ] && break
  sleep 0.05
done
up=$(on a "$farside" lend up --listen "$address:7301" --device "$work/card0" --lease 2 --name a --json)
place=$(sed -n 's/^  "address": "\(.*\)",$/\1/p' <<<"$up")
token() { sed -n 's/^  "token": "\(.*\)".*$/\1/p'; }
echo "A$ farside lend up                     # it lends card0 at $place"

say "B joins A, borrows its card, and searches a graph on one card of its own and the borrowed one"
on b "$farside" join "$place" "$(token <<<"$up")" --name b
on b "$farside" available
on b "$farside" borrow card0 --with program:67108864 -- \
  "$farside" demo --bundled --on-demand --iterations 5 >"$work/b.txt" || fail "B's results are wrong"
grep -E "^(search|machine|BFS)|^ +at |results" "$work/b.txt" || true

say "B borrows it again, and is stopped in the middle for longer than its lease runs"
on b "$farside" borrow card0 --with program:67108864 -- \
  "$farside" demo --bundled --quiet --iterations 50000 2>"$work/b.err" &
b=$!
at_work=no
for _ in $(seq 400); do
  on a "$farside" cards "$work/card0" --json >"$work/cards.json"
  if grep -qE '"jobs": [1-9]' "$work/cards.json"; then
    at_work=yes
    break
  fi
  sleep 0.05
done
# One that was stopped while it opens its cards would have another thing to say.
[ "$at_work" = yes ] || fail "B launches nothing on the card: $(cat "$work/cards.json" "$work/b.err")"
signal STOP b
on a "$farside" who

say "C wants the card: it gets it when B's lease is over, reset and scrubbed"
invited=$(on a "$farside" lend invite --json)
on c "$farside" join "$place" "$(token <<<"$invited")" --name c
on c "$farside" borrow card0 --wait 10 --with program:67108864 -- \
  "$farside" demo --bundled --on-demand --iterations 5 >"$work/c.txt" || fail "C's results are wrong"
grep -E "^(BFS|PageRank)|results" "$work/c.txt" || true

say "B wakes: it is refused, and says why"
signal CONT b
if wait "$b"; then fail "B went on with a card that it had no more"; fi
grep -m1 "the lease of card0 of host" "$work/b.err" || fail "B does not say why: $(cat "$work/b.err")"

say "Who has what, and what the lender counted"
on a "$farside" who
echo
echo "Done: the same program, a card of another machine, and no byte of it reached a card that"
echo "somebody else had."
