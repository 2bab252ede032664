#!/bin/sh
# a process that started before uvmd is found, counted, and seen to exit
# guest: shared
# set: LAB_UVMD=no
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence="/tmp/loop $UVMD_LOG /tmp/status /tmp/ps"
# The one process's sum of a figure, or nothing.
figure() { uvmctl ps --all -o json >/tmp/ps 2>/dev/null && sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" /tmp/ps | awk '{ sum += $1 } END { if (NR) print sum }'; }
has_grown_beyond() { now=$(figure "$1") && [ -n "$now" ] && [ "$now" -gt "$2" ]; }
unknown() { uvmctl status -o json >/tmp/status && sed -n 's/.*"unknown_va_space": *\([0-9]*\).*/\1/p' /tmp/status; }
rounds() { [ "$(grep -c '^round' /tmp/loop)" -ge "$1" ]; }

cat >/tmp/work.toml <<'SCENARIO'
name = "work"
[[process]]
name = "early-bird"
alloc = [{ name = "a", mib = 8 }]
steps = [{ cpu_write = "a" }, { gpu_write = "a" }, { sleep_ms = 20 }]
SCENARIO
lab-runner loop /tmp/work.toml >/tmp/loop 2>&1 &
runner=$!
within 20 "the work does not begin" rounds 2

start uvmd
state_becomes counting
within 10 "no process is listed" has_grown_beyond fault_entries 0
grep -q '"name": *"early-bird"' /tmp/ps || fail "the process is not the one at work"
faults=$(figure fault_entries)
sleep 1
before=$(unknown)
within 10 "its faults are not counted" has_grown_beyond fault_entries $((faults + 100))
sleep 1
after=$(unknown)
[ -n "$before" ] || fail "the status says nothing of unknown VA spaces"
[ "$before" = "$after" ] || fail "events are still nobody's: $before, then $after"

kill -TERM $runner
wait $runner || fail "the work did not end well"
is_exited() { uvmctl ps --all -o json >/tmp/ps && grep -q '"state": *"exited"' /tmp/ps && ! grep -q '"state": *"running"' /tmp/ps; }
within 10 "its end is not shown" is_exited
uvmctl ps --all
grep VmRSS "/proc/$uvmd/status"
stop_uvmd
[ "$(wc -l </sys/kernel/debug/kprobes/list)" = 0 ] || fail "probes are left"
echo "ok: $before events were nobody's while uvmd attached"
