#!/bin/sh
# counts of a pod outlive its processes; a GPU's and a process's history
# guest: shared
# set: LAB_UVMD=no
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence="/tmp/loop /tmp/ps /tmp/owners /tmp/gpus /tmp/history $UVMD_LOG"
get() { wget -q -O - "http://127.0.0.1:9477/api/v1/$1"; }
# figure FILE NAME: the first number of that name.
figure() { sed -n "s/.*\"$2\": *\([0-9]*\).*/\1/p" "$1" | head -n 1; }

POD=b6a16766-05ee-446a-8ee5-ff96a817f47c
CONTAINER=679f3691f7f1b20198548be43b86f265f9fff9be0ac4c973638f5ee89decbca9
pod=/sys/fs/cgroup/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod$(echo $POD | tr - _).slice/cri-containerd-$CONTAINER.scope
unit=/sys/fs/cgroup/system.slice/batch.service
mkdir -p "$pod" "$unit"

cat >/tmp/work.toml <<'SCENARIO'
name = "work"
[[process]]
name = "tenant"
alloc = [{ name = "a", mib = 8 }]
steps = [{ cpu_write = "a" }, { gpu_write = "a" }, { sleep_ms = 20 }]
SCENARIO
start uvmd
state_becomes counting
sh -c 'echo $$ >"$1/cgroup.procs" && exec lab-runner loop /tmp/work.toml' sh "$pod" >/tmp/loop 2>&1 &
runner=$!
# owner KIND ID: the counts of that owner, into /tmp/owner.
owner() { get owners | tr -d ' \n' | sed 's/{"kind"/\n&/g' | grep "\"kind\":\"$1\",\"id\":\"$2\"" >/tmp/owner; }
owner_has_faults() { get owners >/tmp/owners && owner "$1" "$2" && faults=$(figure /tmp/owner fault_entries) && [ "${faults:-0}" -gt 0 ]; }
within 30 "the pod has no faults" owner_has_faults pod $POD
shown() { uvmctl ps -o json >/tmp/ps && grep -q "$1" /tmp/ps; }
within 5 "the process is not the pod's" shown "\"pod_uid\": *\"$POD\""
grep -q "\"container\": *\"$CONTAINER\"" /tmp/ps || fail "the container is not shown"
command_is_shown() { uvmctl show "$(pidof tenant | cut -d ' ' -f 1)" -o json | grep -q '"command_line": *"[^"]'; }
within 5 "the command line is not shown" command_is_shown

# It moves: what it did stays the pod's, what it does is the unit's.
cat "$pod/cgroup.procs" >/tmp/pids
while read -r pid; do echo "$pid" >"$unit/cgroup.procs"; done </tmp/pids
within 10 "the unit has no faults" owner_has_faults unit batch.service
owner pod $POD
stays=$(figure /tmp/owner fault_entries)
sleep 2
owner pod $POD
[ "$(figure /tmp/owner fault_entries)" = "$stays" ] || fail "the pod goes on counting"

get gpus >/tmp/gpus
[ "$(figure /tmp/gpus memory_bytes)" -gt 1000000 ] || fail "the size of the GPU's memory is not known"
grep -q '"pci_address": *"0000:' /tmp/gpus || fail "the GPU's address is not known"
grep -q '"source": *"procfs"' /tmp/gpus || fail "there is no NVML, so procfs tells"
uuid=$(sed -n 's/.*"uuid": *"\(GPU-[-0-9a-f]*\)".*/\1/p' /tmp/gpus | head -n 1)
get "gpus/$uuid/history?seconds=10" >/tmp/history || fail "the GPU has no history"
[ "$(grep -o '"fault_entries": *[1-9]' /tmp/history | wc -l)" -ge 3 ] || fail "no seconds with faults"

kill -TERM $runner
wait $runner || fail "the work did not end well"
sleep 2
owner unit batch.service
ended=$(figure /tmp/owner fault_entries)
[ "$ended" -gt 0 ] || fail "the unit's sums did not outlive its process"
stop_uvmd
echo "ok: $stays fault entries are the pod's and $ended the unit's; memory of $(figure /tmp/gpus memory_bytes) bytes"
