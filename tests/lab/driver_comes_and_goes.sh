#!/bin/sh
# the driver is loaded, removed and loaded again; no count goes back
# set: LAB_DRIVER=no
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence='/tmp/run /tmp/status'
# The sum of a series of /metrics.
metric() { wget -q -O - http://127.0.0.1:9477/metrics | awk -v name="$1" 'index($1, name) == 1 { sum += $2 } END { printf "%d\n", sum }'; }

cat >/tmp/work.toml <<'SCENARIO'
name = "work"
[[process]]
name = "work"
alloc = [{ name = "a", mib = 8 }]
steps = [{ cpu_write = "a" }, { gpu_write = "a" }, { cpu_read = "a", length = "1 MiB" }, { verify = "a" }]
SCENARIO
state_becomes waiting
grep -q 'nvidia.uvm' /tmp/status || fail "it does not say that nvidia-uvm is missing"
faults=0 bytes=0 hits=0
for round in 1 2; do
  insmod /lib/modules/nvidia.ko arch=hopper memory_mib=64 || fail "nvidia.ko"
  insmod /lib/modules/nvidia-uvm.ko uvm_enable_debug_procfs=1 uvm_enable_builtin_tests=1 || fail "nvidia-uvm.ko"
  major=$(awk '$2 == "nvidia-uvm" { print $1 }' /proc/devices)
  rm -f /dev/nvidia-uvm /dev/nvidia-uvm-tools
  mknod /dev/nvidia-uvm c "$major" 0
  mknod /dev/nvidia-uvm-tools c "$major" 1
  state_becomes counting
  for probe in 'k  *uvm_perf_event_notify' 'k  *uvm_va_space_mm_register' 'k  *uvm_va_space_destroy' 'r  *uvm_va_space_destroy'; do
    grep -q " $probe" /sys/kernel/debug/kprobes/list || { cat /sys/kernel/debug/kprobes/list; fail "round $round: no probe: $probe"; }
  done
  lab-runner run /tmp/work.toml >/tmp/run 2>&1 || fail "round $round: the figures are not exact"
  for series in faults:uvm_gpu_faults_total bytes:uvm_migrated_bytes_total hits:uvmd_probe_hits_total; do
    before=${series%%:*} after=$(metric "${series#*:}")
    [ "$after" -gt "$((before))" ] || fail "round $round: ${series#*:} went from $((before)) to $after"
    eval "$before=$after"
  done
  echo "round $round: $faults faults, $bytes bytes, $hits hits so far"
  rmmod nvidia-uvm || fail "uvmd holds the module"
  rmmod nvidia || fail "nvidia.ko is held"
  state_becomes waiting
  [ "$(metric uvm_gpu_faults_total)" -ge "$faults" ] || fail "round $round: the sum of faults went back when the driver left"
done
echo "ok"
