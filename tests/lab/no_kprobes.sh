#!/bin/sh
# without kprobes and fentry uvmd counts by the driver's tools, exactly
# set: LAB_UVMD=no
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence="/tmp/run $UVMD_LOG /tmp/status /tmp/ps /tmp/truth.json"
# The process's sum of a figure in uvmd.
counted() { figure_of work "$1"; }

# The kernel shows its kprobe support here; an empty folder over it is a kernel without.
mount -t tmpfs nodev /sys/bus/event_source/devices
# Without the driver's types, there is no fentry either.
mkdir /tmp/btf
cp /sys/kernel/btf/vmlinux /tmp/btf/
mount --bind /tmp/btf /sys/kernel/btf || fail "mount"
start uvmd
state_becomes counting
grep -q '"backend": *"tools"' /tmp/status || fail "the source is not tools"
grep -q 'source_reduced' /tmp/status || fail "the state does not say that the source is reduced"
grep -qi kprobe /tmp/status || fail "the reason is not named"

cat >/tmp/work.toml <<'SCENARIO'
name = "work"
[[process]]
name = "work"
alloc = [{ name = "a", mib = 96 }]
steps = [{ sleep_ms = 3000 }, { gpu_write = "a" }, { cpu_read = "a", length = "4 MiB" }, { gpu_read = "a" }, { verify = "a" }, { sleep_ms = 3000 }]
SCENARIO
lab-runner run /tmp/work.toml --once --no-uvmd --report /tmp/truth.json >/tmp/run 2>&1 || fail "the run is not valid"
within 20 "its end is not seen" is_exited
are_exact fault_entries cpu_faults bytes_htod bytes_dtoh
uvmctl ps --all
stop_uvmd
timeout 5 pidof uvmd && fail "a holder is left"
rmmod nvidia-uvm || fail "the driver cannot be unloaded: something is attached"
echo "ok"
