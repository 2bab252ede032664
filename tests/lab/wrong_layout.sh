#!/bin/sh
# a driver whose structures are not those of its version is refused: at once where the kernel shows its types, by its events elsewhere; unharmed
# set: LAB_CLAIM_VERSION=580.142
# set: LAB_UVMD=no
set -u
fail() { echo "FAILED: $*"; cat /tmp/run /tmp/status /run/uvmd-test.log 2>/dev/null; exit 1; }
# state_becomes STATE: within 20 s
state_becomes() {
  i=0
  until uvmctl status --json 2>/dev/null | tee /tmp/status | grep -q "\"state\": *\"$1\""; do
    i=$((i + 1))
    [ $i -lt 100 ] || fail "the state did not become $1"
    sleep 0.2
  done
}
stop() {
  kill -TERM $uvmd
  wait $uvmd || fail "uvmd did not stop cleanly"
}

cat >/tmp/work.toml <<'SCENARIO'
name = "work"
[[process]]
name = "work"
alloc = [{ name = "a", mib = 8 }]
steps = [{ cpu_write = "a" }, { gpu_write = "a" }, { verify = "a" }]
SCENARIO

if [ -e /sys/kernel/btf/nvidia_uvm ]; then
  uvmd >/run/uvmd-test.log 2>&1 &
  uvmd=$!
  state_becomes refused
  grep -q 'at bit [0-9]* by the driver.s types in /sys/kernel/btf/nvidia_uvm, and at bit [0-9]*' /tmp/status ||
    fail "the reason names no field with both values"
  [ "$(wc -l </sys/kernel/debug/kprobes/list)" = 0 ] || fail "probes were attached"
  stop
fi

# Most kernels do not show them.
mkdir /tmp/btf
cp /sys/kernel/btf/vmlinux /tmp/btf/
mount --bind /tmp/btf /sys/kernel/btf || fail "mount"
uvmd >/run/uvmd-test.log 2>&1 &
uvmd=$!
state_becomes counting
lab-runner run --no-uvmd /tmp/work.toml >/tmp/run 2>&1 || fail "the work went wrong"
state_becomes refused
uvmctl status
grep -q 'do not look as those of' /tmp/status || fail "the reason does not say that the events look wrong"
[ "$(wc -l </sys/kernel/debug/kprobes/list)" = 0 ] || fail "probes are still attached"
lab-runner run --no-uvmd /tmp/work.toml >/tmp/run 2>&1 || fail "the driver was harmed"
stop
echo "ok"
