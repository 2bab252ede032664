#!/bin/sh
# without kprobes and the driver's types uvmd waits
# set: LAB_UVMD=no
set -u
# shellcheck source=lab/vm/expect
. /lab/expect

# The kernel shows its kprobe support here; an empty folder over it is a kernel without.
mount -t tmpfs nodev /sys/bus/event_source/devices
# Without the driver's types, there is no fentry either.
mkdir /tmp/btf
cp /sys/kernel/btf/vmlinux /tmp/btf/
mount --bind /tmp/btf /sys/kernel/btf || fail "mount"
start uvmd
waits_for_kprobes() { state_is waiting && grep -qi kprobe /tmp/status; }
within 20 "it does not wait and name kprobes as the reason" waits_for_kprobes
cat /tmp/status
wget -S -O /dev/null http://127.0.0.1:9477/readyz 2>&1 | grep -q ' 503 ' || fail "readyz is not 503"
stop_uvmd
echo "ok"
