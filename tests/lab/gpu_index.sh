#!/bin/sh
# gpu is NVML's index, and an NVML that hangs stops no counting
# set: LAB_NVML=yes
# set: LAB_SWGPU_PARAMETERS=gpus=2
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence='/tmp/gpus /tmp/processes /tmp/metrics /tmp/table'
get() { wget -q -O - "http://127.0.0.1:9477$1"; }

# NVML's order is the reverse of the module's, which is that of the addresses.
uuid_of() { sed -n 's/^GPU UUID: *//p' "$1" | tr -d ' \t'; }
set -- /proc/driver/nvidia/gpus/*/information
[ $# = 2 ] || fail "there are $# GPUs, not 2"
address_of() { basename "$(dirname "$1")"; }
uuid_1=$(uuid_of "$1") address_1=$(address_of "$1")
uuid_0=$(uuid_of "$2") address_0=$(address_of "$2")

cat >/tmp/work.toml <<'SCENARIO'
name = "work"
gpus = 2
[[process]]
name = "on-first"
gpus = [0]
alloc = [{ name = "a", mib = 8 }]
steps = [{ cpu_write = "a" }, { gpu_write = "a", gpu = 0 }, { sleep_ms = 20 }]
[[process]]
name = "on-second"
gpus = [1]
alloc = [{ name = "a", mib = 8 }]
steps = [{ cpu_write = "a" }, { gpu_write = "a", gpu = 1 }, { sleep_ms = 20 }]
SCENARIO
state_becomes counting
lab-runner loop /tmp/work.toml >/tmp/loop 2>&1 &
runner=$!

# A line for each GPU.
gpus() { get /api/v1/gpus | tr -d ' \n' | sed 's/{"gpu":/\n&/g' >/tmp/gpus; }
# gpu INDEX PATTERN: what is said of that GPU.
gpu() { gpus && grep "^{\"gpu\":$1," /tmp/gpus | grep -q "$2"; }
within 30 "the first GPU is not NVML's last" gpu 1 "\"uuid\":\"$uuid_1\""
within 30 "the second GPU is not NVML's first" gpu 0 "\"uuid\":\"$uuid_0\""
for of in "0 $address_0" "1 $address_1"; do
  # shellcheck disable=SC2086 # words
  set -- $of
  gpu "$1" "\"pci_address\":\"$2\"" || fail "GPU $1 is not at $2"
  gpu "$1" '"source":"nvml"' || fail "NVML is not the source of GPU $1"
  gpu "$1" '"memory_used_bytes":[0-9]' || fail "the memory in use of GPU $1 is not known"
done

# The filter takes the index, and the UUID; the processor id is neither.
names() { get "/api/v1/processes/summary?gpu=$1" >/tmp/processes && grep -o '"name": *"on-[a-z]*"' /tmp/processes | sort -u | tr -d ' \n'; }
is() { [ "$(names "$1")" = "\"name\":\"$2\"" ]; }
for filter in 0 "$uuid_0"; do within 20 "?gpu=$filter is not the second GPU" is "$filter" on-second; done
for filter in 1 "$uuid_1"; do within 20 "?gpu=$filter is not the first GPU" is "$filter" on-first; done
# The driver numbers processors from 1, and leaves gaps: one of the two ids is no index.
processors=$(sed -n 's/.*"processor_id":\([0-9]*\).*/\1/p' /tmp/gpus)
processor=$(echo "$processors" | sort -n | tail -n 1)
[ "$processor" -ge 2 ] || fail "the driver has the processors $processors"
get "/api/v1/processes/summary?gpu=$processor" >/tmp/processes || fail "?gpu=$processor is an error"
! grep -q '"name"' /tmp/processes || fail "the processor id $processor is taken for an index"

# In every metric the index and the UUID are of one GPU.
get /metrics >/tmp/metrics || fail "no metrics"
grep -q "^uvm_gpu_info{.*UUID=\"$uuid_0\".*gpu=\"0\"" /tmp/metrics || grep -q "^uvm_gpu_info{.*gpu=\"0\".*UUID=\"$uuid_0\"" /tmp/metrics ||
  fail "uvm_gpu_info does not name GPU 0"
# CPUs throttle too: their rows have the UUID "cpu" and no index.
pairs=$(grep '[{,]UUID="GPU-' /tmp/metrics | sed 's/.*[{,]UUID="\([^"]*\)".*/\1 &/; s/^\([^ ]*\) .*[{,]gpu="\([^"]*\)".*/\2 \1/' | sort -u)
[ "$pairs" = "$(printf '0 %s\n1 %s' "$uuid_0" "$uuid_1")" ] || fail "index and UUID do not go together: $pairs"
! grep '[{,]gpu="' /tmp/metrics | grep -qv '[{,]UUID="' || fail "a metric has a gpu and no UUID"

uvmctl gpus -o wide --no-headers >/tmp/table || fail "uvmctl gpus"
[ "$(awk '{ print $1, $NF }' /tmp/table)" = "$pairs" ] || fail "uvmctl has other indices"

# NVML hangs: faults are counted, and uvmd answers.
faults() { get /api/v1/status | tr -d ' \n' | sed 's/.*"total":{//; s/.*"fault_entries":\([0-9]*\).*/\1/'; }
touch /tmp/nvml-hangs
# The memory in use, which NVML alone has, ages out: it hangs.
within 60 "the memory in use is still known while NVML hangs" gpu 0 '"memory_used_bytes":null'
within 20 "the log has no warning of NVML" grep -q "WARN.*NVML does not respond" /run/uvmd.log
before=$(faults)
rises() { [ "$(faults)" -gt "$before" ]; }
within 20 "nothing is counted while NVML hangs" rises
gpu 0 "\"uuid\":\"$uuid_0\"" || fail "the index is forgotten while NVML hangs"
rm /tmp/nvml-hangs
within 60 "NVML answers again and the memory in use is not known" gpu 0 '"memory_used_bytes":[0-9]'

kill -TERM $runner
wait $runner || fail "the work did not end well"
# shellcheck disable=SC2086 # words
echo "ok: GPU 0 is $uuid_0 at $address_0; the driver's processors are" $processors
