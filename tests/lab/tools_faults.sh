#!/bin/sh
# faults that the driver's tools have no record of have an unknown access, and their process is named
# set: LAB_UVMD=no
# guest: shared
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence="/tmp/run $UVMD_LOG /tmp/status /tmp/ps /tmp/truth.json"
# A count in uvmd's total, and one by access there.
total() { tr -d ' \n' </tmp/status | sed 's/.*"total":{//'; }
counted() { total | sed -n "s/.*\"$1\":\([0-9][0-9]*\).*/\1/p"; }
by_access() { total | sed 's/.*"fault_entries_by_access":{//; s/}.*//' | tr , '\n' | sed -n "s/^\"$1\"://p"; }

start uvmd --set collector.source=tools --set collector.tools_level=faults
state_becomes counting
tr -d ' \n' </tmp/status | grep -q '"not_counted":\["freed_blocks","api_calls","cpu_fault_sites","populated","resident","handler_runs","evictions"\]' ||
  fail "the level is not that of faults"

cat >/tmp/work.toml <<'SCENARIO'
name = "work"
gpu_mem_mib = 64
[[process]]
name = "work"
alloc = [{ name = "a", mib = 80 }]
steps = [{ sleep_ms = 5000 }, { gpu_write = "a" }, { gpu_read = "a" }, { verify = "a" }, { sleep_ms = 3000 }]
SCENARIO
lab-runner run /tmp/work.toml --once --no-uvmd --report /tmp/truth.json >/tmp/run 2>&1 &
runner=$!
is_found() { uvmctl ps -o json >/tmp/ps && tr -d ' \n' </tmp/ps | grep -q '"name":"work"'; }
within 20 "it is not found" is_found
# One that stands still reads nothing: the queue of 16,384 records fills.
kill -STOP "$uvmd"
wait "$runner" || fail "the run is not valid"
kill -CONT "$uvmd"
within 20 "its end is not seen" is_exited
is_named() { answers && grep -q queue_full /tmp/status; }
within 20 "queue_full is not there" is_named

are_exact fault_entries cpu_faults bytes_htod bytes_dtoh
for access in read write unknown; do echo "$access: $(by_access $access)"; done
[ "$(by_access unknown)" -gt 0 ] || fail "no fault has an unknown access"
sum=$(($(by_access read) + $(by_access write) + $(by_access unknown)))
[ "$sum" = "$(counted fault_entries)" ] || fail "the accesses are not those of all faults"
stop_uvmd
timeout 5 pidof uvmd && fail "a holder is left"
echo "ok"
