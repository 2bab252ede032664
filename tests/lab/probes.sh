#!/bin/sh
# every probe of the driver is attached, and their counts agree
# guest: shared
# set: LAB_UVMD=no
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence="/tmp/run /tmp/status /tmp/ps $UVMD_LOG"
# The first figure of this name in what uvmd says of the process; without one, a word that equals no figure.
figure() { sed -n "s/.*\"name\":\"work\"//; s/.*\"$1\":\([0-9][0-9]*\).*/\1/p" /tmp/one | grep . || echo "no-$1"; }
cat >/tmp/work.toml <<'SCENARIO'
name = "work"
[[process]]
name = "work"
alloc = [{ name = "a", mib = 96 }]
steps = [{ gpu_write = "a" }, { cpu_read = "a", length = "4 MiB" }, { gpu_read = "a" }, { verify = "a" }]
SCENARIO
start uvmd
state_becomes counting
! grep -q '"unavailable_reason": *"' /tmp/status || fail "a probe is missing"
grep -q '"unavailable_reason": *null' /tmp/status || fail "the status names no probes"
lab-runner run /tmp/work.toml >/tmp/run 2>&1 || fail "the figures are not exact"
sleep 1
uvmctl ps --all -o json >/tmp/ps
tr -d ' \n' </tmp/ps | sed 's/"gpus":/\n/' | sed 's/"pid":/\n"pid":/g' | grep '"name":"work"' | head -1 >/tmp/one
entries=$(figure fault_entries)
populated=$(figure populated_bytes)
evictions=$(figure evictions)
batched=$(sed -n 's/.*"batch_entries":{"count":[0-9]*,"sum":\([0-9]*\).*/\1/p' /tmp/one)
batched=${batched:-none}
batches=$(figure batches)
replays=$(figure replays)
echo "$entries entries, $batched of them in $batches batches with $replays replays; $populated bytes populated, $evictions evictions"
[ "$batched" = "$entries" ] || fail "not every fault entry is in a batch"
[ "$replays" = "$batches" ] || fail "not one replay for each batch, as the driver's policy is"
# All of it was written by the GPU first, with nothing to copy; nothing that is not there comes to the GPU without a copy afterwards.
[ "$populated" = $((96 << 20)) ] || fail "populated is not what was touched first"
[ "$(figure induced_eviction_bytes)" = "$(figure evicted_bytes)" ] || fail "alone on the GPU, it pushed out its own memory only"
[ "$evictions" -gt 0 ] || fail "no eviction"
stop_uvmd
echo ok
