#!/bin/sh
# a driver of another layout is refused, by types or by events, and counted by its tools
# set: LAB_CLAIM_VERSION=580.142
# set: LAB_UVMD=no
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence="/tmp/run /tmp/status $UVMD_LOG"

cat >/tmp/work.toml <<'SCENARIO'
name = "work"
[[process]]
name = "work"
alloc = [{ name = "a", mib = 8 }]
steps = [{ cpu_write = "a" }, { gpu_write = "a" }, { verify = "a" }]
SCENARIO

if [ -e /sys/kernel/btf/nvidia_uvm ]; then
  start uvmd --set collector.source=probes
  state_becomes refused
  grep -q 'at bit [0-9]* by the driver.s types in /sys/kernel/btf/nvidia_uvm, and at bit [0-9]*' /tmp/status ||
    fail "the reason names no field with both values"
  [ "$(wc -l </sys/kernel/debug/kprobes/list)" = 0 ] || fail "probes were attached"
  stop_uvmd
fi

# Most kernels do not show them.
mkdir /tmp/btf
cp /sys/kernel/btf/vmlinux /tmp/btf/
mount --bind /tmp/btf /sys/kernel/btf || fail "mount"
start uvmd --set collector.source=probes
state_becomes counting
lab-runner run --no-uvmd /tmp/work.toml >/tmp/run 2>&1 || fail "the work went wrong"
state_becomes refused
uvmctl status
grep -q 'do not look as those of' /tmp/status || fail "the reason does not say that the events look wrong"
[ "$(wc -l </sys/kernel/debug/kprobes/list)" = 0 ] || fail "probes are still attached"
lab-runner run --no-uvmd /tmp/work.toml >/tmp/run 2>&1 || fail "the driver was harmed"
stop_uvmd

start uvmd
state_becomes counting
grep -q '"backend": *"ebpf"' /tmp/status || fail "it does not begin with probes"
lab-runner run --no-uvmd /tmp/work.toml >/tmp/run 2>&1 || fail "the work went wrong"
counts_by_tools() { answers && grep -q '"backend": *"tools"' /tmp/status; }
within 20 "the tools do not count instead" counts_by_tools
grep -q 'do not look as those of' /tmp/status || fail "the state does not say why"
stop_uvmd
echo "ok"
