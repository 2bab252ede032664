#!/bin/sh
# residency without the driver's types: counted in a family, else unknown
# guest: shared
# set: LAB_UVMD=no
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence="/tmp/run /tmp/status /tmp/ps $UVMD_LOG"

# Most kernels do not show them.
mkdir /tmp/btf
cp /sys/kernel/btf/vmlinux /tmp/btf/
mount --bind /tmp/btf /sys/kernel/btf || fail "mount"
claim() {
  echo "$1" >/tmp/version
  start uvmd
  state_becomes counting
  grep -q "\"driver\": *\"$1\"" /tmp/status || fail "it is not taken for $1"
}
metrics() { wget -q -O - http://127.0.0.1:9477/metrics; }

case $(cat /sys/module/nvidia_uvm/version) in
  535.*) other=535.129.03 ;;
  550.*) other=550.90.07 ;;
  *) fail "which version has the same layout?" ;;
esac
: >/tmp/version
mount --bind /tmp/version /sys/module/nvidia_uvm/version || fail "mount"
claim $other
cat >/tmp/work.toml <<'SCENARIO'
name = "work"
gpu_mem_mib = 64
[[process]]
name = "work"
alloc = [{ name = "a", mib = 96 }]
steps = [{ gpu_write = "a" }, { cpu_read = "a", length = "4 MiB" }, { gpu_read = "a" }]
SCENARIO
# Compared with the driver's own account of what is populated, and of where each page is.
lab-runner run /tmp/work.toml --report /tmp/report >/tmp/run 2>&1 || fail "the figures are not exact"
grep -q '"truth_bytes": *[1-9]' /tmp/report || fail "nothing was resident, or it was not compared"
populated=$(metrics | sed -n 's/^uvm_populated_bytes_total{.*UUID="GPU-.* //p')
[ "${populated:-0}" -ge $((96 << 20)) ] || fail "$populated bytes populated, and not 96 MiB each time"
echo "$other without its types: $populated bytes populated, and what is resident is exact"
stop_uvmd

# Of this family it is not known, nor does anything of its events match this driver's: so it shows only until the first event.
claim 525.147.05
grep -q '"populated_bytes": *null' /tmp/status || fail "what is not counted is not null"
! grep -q '"populated_bytes": *[0-9]' /tmp/status || fail "something is told to be counted"
grep -q 'resident memory is not counted' /tmp/status || fail "the status does not say so"
grep -q '"reason": *"residency_unavailable"' /tmp/status || fail "nor is it degraded"
grep -q 'WARN.*resident memory is not counted' $UVMD_LOG || fail "nor does the log"
metrics | grep -qx 'uvmd_degraded{.*reason="residency_unavailable"} 1' || fail "nor does a metric"
metrics | grep -q '^uvmd_build_info' || fail "there are no metrics"
! metrics | grep -qE '^uvm_(owner_)?(resident|populated)' || fail "there are metrics of it"
stop_uvmd
echo "ok"
