#!/bin/sh
# a driver of an unknown version counts by its types; without them, or if they contradict, by its tools
# set: LAB_CLAIM_VERSION=999.1
# set: LAB_UVMD=no
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence="/tmp/run /tmp/status $UVMD_LOG"

# exactly FIGURES: a scenario is counted, and each of at least this many figures is right.
exactly() {
  # The lab reads residency by the version, too, and fails in that where the driver is of another layout.
  lab-runner run --once /lab/scenarios/pingpong.toml >/tmp/run 2>&1
  ! grep -q 'WRONG$' /tmp/run || fail "the figures are not exact"
  [ "$(grep -c ' ok$' /tmp/run)" -ge "$1" ] || fail "fewer than $1 figures are compared"
}

if [ -e /sys/kernel/btf/nvidia_uvm ]; then
  echo "--- with types"
  start uvmd
  state_becomes counting
  grep -q '"layout": *"from types"' /tmp/status || fail "the status does not say where the layout is from"
  exactly 14
  wget -q -O - http://127.0.0.1:9477/metrics | grep -q 'layout="from types"' || fail "no metric says where the layout is from"
  uvmctl doctor | tr -s ' ' | grep '^ok driver nvidia-uvm 999.1, layout from types' || fail "the doctor does not say it"
  stop_uvmd

  echo "--- with types in which two causes are exchanged"
  mkdir /tmp/exchanged
  cp /sys/kernel/btf/vmlinux /tmp/exchanged/
  sed 's/CAUSE_EVICTION/CAUSE_exchange/; s/CAUSE_PREFETCH/CAUSE_EVICTION/; s/CAUSE_exchange/CAUSE_PREFETCH/' /sys/kernel/btf/nvidia_uvm >/tmp/exchanged/nvidia_uvm
  [ "$(wc -c </tmp/exchanged/nvidia_uvm)" = "$(wc -c </sys/kernel/btf/nvidia_uvm)" ] || fail "the copy is not of the same size"
  mount --bind /tmp/exchanged /sys/kernel/btf || fail "mount"
  start uvmd --set collector.source=probes
  state_becomes refused
  grep -q 'UVM_MAKE_RESIDENT_CAUSE_[A-Z]* is [34] by the driver.s types' /tmp/status || fail "the reason does not name the cause"
  [ "$(wc -l </sys/kernel/debug/kprobes/list)" = 0 ] || fail "probes are attached"
  stop_uvmd
  start uvmd
  state_becomes counting
  grep -q '"backend": *"tools"' /tmp/status || fail "the tools do not count"
  grep -q 'UVM_MAKE_RESIDENT_CAUSE_[A-Z]* is [34] by the driver.s types' /tmp/status || fail "the reason does not name the cause"
  stop_uvmd
  umount /sys/kernel/btf
fi

echo "--- without types"
mkdir /tmp/btf
cp /sys/kernel/btf/vmlinux /tmp/btf/
mount --bind /tmp/btf /sys/kernel/btf || fail "mount"
start uvmd --set collector.source=probes
state_becomes refused
grep -q '999\.1 is not supported' /tmp/status || fail "the reason does not name the version"
wget -S -O /dev/null http://127.0.0.1:9477/readyz 2>&1 | grep -q ' 503 ' || fail "readyz is not 503"
wget -q -O /dev/null http://127.0.0.1:9477/livez || fail "livez"
[ "$(wc -l </sys/kernel/debug/kprobes/list)" = 0 ] || fail "probes are attached"
stop_uvmd
start uvmd
state_becomes counting
grep -q '"backend": *"tools"' /tmp/status || fail "the tools do not count"
# Drivers 550 to 560 have another block for tools than an unknown version is expected to have.
if [ "${TOOLS_COUNT:-no}" = yes ]; then
  exactly 14
else
  cat >/tmp/work.toml <<'SCENARIO'
name = "work"
[[process]]
name = "work"
alloc = [{ name = "a", mib = 1 }]
steps = [{ gpu_write = "a" }, { sleep_ms = 3000 }]
SCENARIO
  lab-runner run --once --no-uvmd /tmp/work.toml >/tmp/run 2>&1 &
  is_named() { answers && grep -q 'a VA space of process [0-9]* is not counted: ' /tmp/status; }
  within 20 "it is not named that the driver refuses to count" is_named
  wait $!
fi
stop_uvmd
echo "ok"
