#!/bin/sh
# without kprobes uvmd waits and says so
# set: LAB_UVMD=no
set -u
fail() { echo "FAILED: $*"; exit 1; }

# The kernel shows its kprobe support here; an empty folder over it is a kernel without.
mount -t tmpfs nodev /sys/bus/event_source/devices
uvmd >/run/uvmd-test.log 2>&1 &
uvmd=$!
i=0
until uvmctl status --json >/tmp/status 2>/dev/null; do i=$((i + 1)); [ $i -lt 100 ] || fail "uvmd does not answer"; sleep 0.2; done
sleep 2
uvmctl status --json >/tmp/status || fail "uvmctl status"
cat /tmp/status
grep -q '"state": *"waiting"' /tmp/status || fail "the state is not waiting"
grep -qi 'kprobe' /tmp/status || fail "the reason does not name kprobes"
wget -S -O /dev/null http://127.0.0.1:9477/readyz 2>&1 | grep -q ' 503 ' || fail "readyz is not 503"
kill -TERM $uvmd
wait $uvmd || fail "uvmd did not stop cleanly"
! grep -q panicked /run/uvmd-test.log || fail "a panic"
echo "ok"
