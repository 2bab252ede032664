#!/bin/sh
# a driver whose structures are not those of its version is refused, detached from and left unharmed
# set: LAB_CLAIM_VERSION=580.142
set -u
fail() { echo "FAILED: $*"; cat /tmp/run 2>/dev/null; exit 1; }

cat >/tmp/work.toml <<'SCENARIO'
name = "work"
[[process]]
name = "work"
alloc = [{ name = "a", mib = 8 }]
steps = [{ cpu_write = "a" }, { gpu_write = "a" }, { verify = "a" }]
SCENARIO
i=0
until uvmctl status --json 2>/dev/null | grep -q '"state": *"counting"'; do
  i=$((i + 1))
  [ $i -lt 100 ] || fail "uvmd does not attach by the version's word alone"
  sleep 0.2
done
lab-runner run --no-uvmd /tmp/work.toml >/tmp/run 2>&1 || fail "the work went wrong"
i=0
until uvmctl status --json | tee /tmp/status | grep -q '"state": *"refused"'; do
  i=$((i + 1))
  [ $i -lt 25 ] || { cat /tmp/status; fail "uvmd counts on a layout that is not the driver's"; }
  sleep 0.2
done
uvmctl status
grep -q 'do not look as those of' /tmp/status || fail "the reason does not say that the events look wrong"
[ "$(wc -l </sys/kernel/debug/kprobes/list)" = 0 ] || fail "probes are still attached"
lab-runner run --no-uvmd /tmp/work.toml >/tmp/run 2>&1 || fail "the driver was harmed"
echo "ok"
