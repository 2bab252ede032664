#!/bin/sh
# doctor names what is missing, and nothing while uvmd counts
# set: LAB_DRIVER=no
# set: LAB_UVMD=no
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence=/tmp/doctor
# expect STATUS: of a doctor's visit, whose words are in /tmp/doctor
expect() {
  uvmctl doctor "$@" >/tmp/doctor 2>&1
  [ $? = "$status" ] || fail "its exit status is not $status"
}
# says WORDS...: each on a line of its own, blanks squeezed
says() {
  for words in "$@"; do
    tr -s ' ' </tmp/doctor | grep -q "^$words" || fail "it does not say: $words"
  done
}

echo "--- without the driver and without uvmd"
status=1
expect
cat /tmp/doctor
says 'ok kprobes' 'ok kernel types' 'missing driver' 'missing uvmd cannot be reached' '2 things that uvmd needs are missing'

echo "--- with both"
insmod /lib/modules/nvidia.ko arch=hopper memory_mib=64 || fail "nvidia.ko"
insmod /lib/modules/nvidia-uvm.ko uvm_perf_prefetch_threshold=75 || fail "nvidia-uvm.ko"
major=$(awk '$2 == "nvidia-uvm" { print $1 }' /proc/devices)
mknod /dev/nvidia-uvm c "$major" 0
mknod /dev/nvidia-uvm-tools c "$major" 1
printf '[log]\nformat = "json"\n' >/tmp/uvmd.toml
start uvmd --config /tmp/uvmd.toml
state_becomes counting
status=0
expect --config /tmp/uvmd.toml
cat /tmp/doctor
says 'ok driver nvidia-uvm' 'ok rights uvmd (process' 'ok ptrace' 'ok configuration /tmp/uvmd.toml is in order' 'ok uvmd counts on lab' \
  'ok version' 'ok losses' 'nothing that uvmd needs is missing' 'ok parameters uvm_perf_prefetch_threshold=75 (default 51)$' 'ok functions' 'ok new programs'
! grep -q '^missing\|^unknown' /tmp/doctor || fail "something is missing"
uvmctl status -o json | grep -q '"uvm_perf_prefetch_threshold": *"75"' || fail "the status does not have the driver's parameters"
# For programs.
status=0
expect -o json
grep -q '"ok": true' /tmp/doctor || fail "the JSON does not say so"

echo "--- with kprobes switched off"
stop_uvmd
echo 0 >/sys/kernel/debug/kprobes/enabled
start uvmd
state_becomes counting
status=0
expect
says 'warning kprobes kprobes are switched off' "ok tools uvmd counts by the driver's tools" 'warning uvmd counts on lab, but is degraded'
! grep -q '^ok *probes' /tmp/doctor || fail "it speaks of probes, and there are none"
stop_uvmd
start uvmd --set collector.source=probes
state_becomes waiting
status=1
expect
says 'missing kprobes kprobes are switched off' 'missing uvmd waits on lab'
stop_uvmd
echo 1 >/sys/kernel/debug/kprobes/enabled

echo "--- with a version that nobody knows"
echo 400.12.03 >/tmp/version
mount --bind /tmp/version /sys/module/nvidia_uvm/version
# Without types, too.
mkdir /tmp/btf
cp /sys/kernel/btf/vmlinux /tmp/btf/
mount --bind /tmp/btf /sys/kernel/btf || fail "mount"
start uvmd
state_becomes refused
expect
says 'missing driver nvidia-uvm 400.12.03 is not supported: version not in the table' 'missing uvmd refuses the driver' '2 things that uvmd needs are missing'
stop_uvmd
umount /sys/kernel/btf

echo "--- with a configuration that is wrong"
umount /sys/module/nvidia_uvm/version
printf '\n[collector]\ninterval = "0s"\n' >/tmp/uvmd.toml
uvmd --check-config --config /tmp/uvmd.toml 2>/tmp/doctor
[ $? = 2 ] || fail "uvmd takes it"
says 'uvmd: /tmp/uvmd.toml:3: collector.interval: '
expect --config /tmp/uvmd.toml
says 'missing configuration /tmp/uvmd.toml:3: collector.interval: '
echo "ok"
