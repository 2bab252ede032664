#!/bin/sh
# every probe that this driver has is attached, and what they count agrees with what is exact
set -u
fail() {
  echo "FAILED: $*"
  cat /tmp/run /tmp/status /tmp/ps 2>/dev/null
  exit 1
}
cat >/tmp/work.toml <<'SCENARIO'
name = "work"
[[process]]
name = "work"
alloc = [{ name = "a", mib = 96 }]
steps = [{ gpu_write = "a" }, { cpu_read = "a", length = "4 MiB" }, { gpu_read = "a" }, { verify = "a" }]
SCENARIO
i=0
until uvmctl status --json 2>/dev/null | tee /tmp/status | grep -q '"state": *"counting"'; do
  i=$((i + 1))
  [ $i -lt 100 ] || fail "it does not count"
  sleep 0.2
done
lab-runner run /tmp/work.toml >/tmp/run 2>&1 || fail "the figures are not exact"
sleep 1
uvmctl ps --all --json >/tmp/ps
uvmctl status --json >/tmp/status
cat /tmp/run /tmp/ps /tmp/status
wget -q -O - http://127.0.0.1:9477/api/v1/processes/$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' /tmp/ps | head -1) | head -c 3000
ls /sys/kernel/btf/; cat /proc/driver/nvidia-uvm/gpus/*/fault_stats
echo ok
