#!/bin/sh
# without kprobes the probes are attached by fentry, and count as exactly
# set: LAB_UVMD=no
# gpu_mem_mib: 64
# timeout: 600
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence="/tmp/run /tmp/status $UVMD_LOG"

# The kernel shows its kprobe support here; an empty folder over it is a kernel without.
mount -t tmpfs nodev /sys/bus/event_source/devices
start uvmd --set collector.source=probes
if [ ! -e /sys/kernel/btf/nvidia_uvm ]; then
  state_becomes waiting
  grep -q '/sys/kernel/btf/nvidia_uvm, which fentry needs' /tmp/status || fail "the reason does not name what is missing"
  stop_uvmd
  echo "ok: this driver was built without BTF"
  exit 0
fi
state_becomes counting
! grep -q '"unavailable_reason": *"' /tmp/status || fail "a probe is missing"
grep -q '"attachment": *"fentry"' /tmp/status || fail "the status does not name the attachment"
uvmctl doctor >/tmp/doctor
grep -q 'ok  *kprobes  *absent; fentry replaces them' /tmp/doctor || { cat /tmp/doctor; fail "the doctor misses kprobes"; }
for scenario in ${FENTRY_SCENARIOS:-pingpong pressure}; do
  lab-runner run --once "/lab/scenarios/$scenario.toml" >/tmp/run 2>&1 || fail "$scenario: the figures are not exact"
  echo "$scenario: exact"
done
[ "$(wc -l </sys/kernel/debug/kprobes/list)" = 0 ] || fail "a kprobe is attached"
answers
grep -q '"dropped_events": *0,' /tmp/status || fail "events were dropped"
! rmmod nvidia-uvm 2>/dev/null || fail "the driver was unloaded under its probes"
stop_uvmd
rmmod nvidia-uvm || fail "something of uvmd is left"
echo "ok"
