#!/bin/sh
# the probes agree with the driver's own counters, and probes that miss events are named
# set: LAB_UVMD=no
# guest: shared
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence="/tmp/loop $UVMD_LOG /tmp/status"
# A figure of the cross-check in the last status.
checked() { tr -d ' \n' </tmp/status | sed 's/.*"crosscheck":{//' | sed -n "s/^[^}]*\"$1\":\([0-9][0-9]*\).*/\1/p"; }
has() { answers && now=$(checked "$1") && [ -n "$now" ] && [ "$now" -ge "$2" ]; }
is_degraded() { answers && tr -d ' \n' </tmp/status | grep -q '"reason":"sources_disagree"'; }
rounds() { [ "$(grep -c '^round' /tmp/loop)" -ge "$1" ]; }

# Too slow for a verdict, with which a process is not checked.
cat >/tmp/work.toml <<'SCENARIO'
name = "work"
[[process]]
name = "work"
alloc = [{ name = "a", size = "64 KiB" }]
steps = [{ cpu_write = "a", length = "4 KiB" }, { sleep_ms = 400 }, { gpu_write = "a", length = "4 KiB" }, { sleep_ms = 400 }]
SCENARIO
start uvmd --set collector.crosscheck=sampled
state_becomes counting
lab-runner loop /tmp/work.toml >/tmp/loop 2>&1 &
runner=$!
within 30 "the work does not begin" rounds 1
within 30 "nothing is compared" has comparisons 8
# The kernel no longer runs the probes; the driver counts on.
echo 0 >/sys/kernel/debug/kprobes/enabled || fail "the probes cannot be switched off"
[ "$(checked disagreements)" = 0 ] || fail "the sources disagree"
echo "$(checked comparisons) comparisons, $(checked disagreements) disagreements, $(checked inconclusive) inconclusive"
# In a slow guest the check may be over, and the next one begins a minute after it.
within 100 "probes that miss events are not named" is_degraded
uvmctl status | grep -E 'fault_entries|cpu_faults|bytes_' || fail "no figure is named"
uvmctl doctor | grep 'comparisons' || fail "doctor does not know"
echo 1 >/sys/kernel/debug/kprobes/enabled

# The tracker is closed after ten seconds: each CPU fault would wait for the driver.
holders() { for pid in $(pidof uvmd); do ls -l "/proc/$pid/fd"; done 2>/dev/null | grep -c nvidia-uvm; }
is_detached() { [ "$(holders)" = 0 ]; }
within 20 "the tracker stays" is_detached
kill -TERM $runner
wait $runner || fail "the work did not end well"
rmmod nvidia-uvm || fail "the driver cannot be unloaded: something is attached"
state_becomes waiting
! is_degraded || fail "the state outlives the driver"
has disagreements 3 || fail "the counts of the check are lost"
stop_uvmd
timeout 5 pidof uvmd && fail "a holder is left"
echo "ok"
