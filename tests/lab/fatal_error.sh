#!/bin/sh
# a global fatal error of the driver is named by status, metric and doctor, until the driver is reloaded
# set: LAB_DRIVER=no
# set: LAB_UVMD=no
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence='/tmp/run /tmp/doctor /tmp/status'
ecc_error=/sys/module/nvidia/parameters/ecc_error
metric_is() { [ "$(wget -q -O - http://127.0.0.1:9477/metrics | awk 'index($1, "uvm_driver_fatal_error{") == 1 { print $2 }')" = "$1" ]; }
reason_is() { answers && grep -q "\"driver_fatal_error\": *$1" /tmp/status; }
doctor_says() {
  uvmctl doctor >/tmp/doctor 2>&1
  tr -s ' ' </tmp/doctor | grep -q "^$1" || fail "doctor does not say: $1"
}
load() {
  insmod /lib/modules/nvidia-uvm.ko uvm_enable_debug_procfs=1 uvm_enable_builtin_tests=1 || fail "nvidia-uvm.ko"
  major=$(awk '$2 == "nvidia-uvm" { print $1 }' /proc/devices)
  rm -f /dev/nvidia-uvm /dev/nvidia-uvm-tools
  mknod /dev/nvidia-uvm c "$major" 0
  mknod /dev/nvidia-uvm-tools c "$major" 1
}
# The driver looks for ECC errors while it works.
provoke() {
  echo 1 >$ecc_error
  if lab-runner run /tmp/work.toml >/tmp/run 2>&1; then fail "the program does not notice the ECC error"; fi
}

cat >/tmp/work.toml <<'SCENARIO'
name = "work"
[[process]]
name = "work"
alloc = [{ name = "a", mib = 8 }]
steps = [{ cpu_write = "a" }, { gpu_write = "a" }, { cpu_read = "a", length = "1 MiB" }]
SCENARIO
insmod /lib/modules/nvidia.ko arch=hopper memory_mib=64 ecc=1 || fail "nvidia.ko"

echo "--- by the probe, as where uvmd may not open the driver's devices"
load
start unshare -m sh -c 'mount --bind /dev/null /dev/nvidia-uvm-tools && exec uvmd'
state_becomes counting
reason_is null || fail "there is an error already"
metric_is 0 || fail "the metric is not 0"
doctor_says 'ok new programs'
provoke
within 20 "the status does not have the error" reason_is '"nvidia-uvm has a global fatal error (NV_ERR_ECC_ERROR, 0xb): '
metric_is 1 || fail "the metric is not 1"
doctor_says 'warning new programs nvidia-uvm has a global fatal error'
grep -q 'global fatal error (NV_ERR_ECC_ERROR' $UVMD_LOG || fail "uvmd does not log it"
# The log is no source: programs can write into it.
! dmesg | grep -q 'global fatal error' || fail "this driver logs it, so nothing shows that uvmd does without the log"
stop_uvmd

echo "--- by the device, after a restart of uvmd"
start uvmd
state_becomes counting
within 20 "the restarted uvmd does not have the error" reason_is '"nvidia-uvm has a global fatal error: '
metric_is 1 || fail "the metric is not 1 after a restart"

echo "--- a reload ends it"
echo 0 >$ecc_error
rmmod nvidia-uvm || fail "nvidia-uvm is held"
state_becomes waiting
load
state_becomes counting
within 20 "the error did not end with the driver" reason_is null
metric_is 0 || fail "the metric is not 0 after a reload"
lab-runner run /tmp/work.toml >/tmp/run 2>&1 || fail "a program does not run after the reload"
echo "ok"
