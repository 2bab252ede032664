#!/bin/sh
# memory that two GPUs take from each other is a ping-pong between them
# set: LAB_UVMD=no
# set: LAB_SWGPU_PARAMETERS=gpus=2
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence='/tmp/process /tmp/verdict /run/uvmd-test.log'
get() { wget -q -O - "http://127.0.0.1:9477$1"; }
flat() { tr -d ' \n'; }

# load PARAMETER...: the driver and its GPUs anew.
load() {
  rmmod nvidia_uvm || fail "rmmod nvidia_uvm"
  rmmod nvidia || fail "rmmod nvidia"
  insmod /lib/modules/nvidia.ko arch=hopper memory_mib=64 "$@" || fail "nvidia.ko"
  insmod /lib/modules/nvidia-uvm.ko uvm_enable_debug_procfs=1 uvm_enable_builtin_tests=1 || fail "nvidia-uvm.ko"
  major=$(awk '$2 == "nvidia-uvm" { print $1 }' /proc/devices)
  rm -f /dev/nvidia-uvm /dev/nvidia-uvm-tools
  mknod /dev/nvidia-uvm c "$major" 0
  mknod /dev/nvidia-uvm-tools c "$major" 1
}

# scenario NAME STEPS: one process that has 16 MiB, 8 blocks.
scenario() {
  cat >"/tmp/$1.toml" <<SCENARIO
name = "$1"
gpus = 2
$3
[[process]]
name = "$1"
alloc = [{ name = "shared", mib = 16 }]
steps = [$2]
SCENARIO
}
turns='steps = [{ gpu_write = "shared", gpu = 0, stride = "4 KiB" }, { gpu_write = "shared", gpu = 1, stride = "4 KiB" }]'

# pid NAME
pid() { get /api/v1/processes/summary | flat | grep -o "{\"pid\":[0-9]*,\"start_ticks\":[0-9]*,\"started_at\":[^,]*,\"name\":\"$1\"" | tail -n 1 | sed 's/{"pid":\([0-9]*\).*/\1/'; }
# sums NAME: blocks that each GPU took from the other, and bytes taken back, by GPU.
sums() {
  of=$(pid "$1") && [ -n "$of" ] && get "/api/v1/processes/$of" | flat >/tmp/process &&
    grep -o '"peer_bounces":[0-9]*,"peer_reclaimed_bytes":[0-9]*' /tmp/process | sed 's/[^0-9,]//g' | sort -n | tr '\n' ' '
}
has_sums() { [ "$(sums "$1")" = "$2" ]; }
# expect HOW NAME SUMS BOUNCES: what is counted of a program with this name; its bytes are the driver's, too. At the end the CPU reads all,
# to verify it, which is a bounce of each block.
expect() {
  lab-runner run --once "/tmp/$2.toml" >/tmp/run 2>&1 || { cat /tmp/run; fail "$1, $2: the figures are not exact"; }
  within 10 "$1, $2: expected \"$3\", has \"$(sums "$2")\"" has_sums "$2" "$3"
  # Those of CPUs.
  of_cpus=$(grep -o '"cpu_reclaimed_bytes":[0-9]*,"bounces":[0-9]*' /tmp/process | head -n 1 | sed 's/[^0-9,]//g')
  [ "$of_cpus" = "0,$4" ] || fail "$1, $2: CPUs reclaimed and bounced $of_cpus, not 0,$4"
  echo "$1, $2: $3"
}

# verdict HOW: a ping-pong at each of the two GPUs, with the other one.
is_judged() {
  of=$(pid lasting) && [ -n "$of" ] && get "/api/v1/processes/$of/verdict" | flat >/tmp/verdict &&
    [ "$(grep -o '"kind":"ping_pong"' /tmp/verdict | wc -l)" = 2 ] &&
    [ "$(grep -o '"gpu_uuid":"[^"]*"' /tmp/verdict | cut -d: -f2 | sort)" = "$(grep -o '"peer_uuid":"[^"]*"' /tmp/verdict | cut -d: -f2 | sort)" ]
}
verdict() {
  lab-runner run --once /tmp/lasting.toml >/tmp/run 2>&1 &
  runner=$!
  within 60 "$1: no ping-pong between the GPUs" is_judged
  uvmctl explain "$(pid lasting)" >/tmp/explain || fail "$1: uvmctl explain"
  # Its lines are wrapped.
  tr -s ' \n' ' ' </tmp/explain >/tmp/words
  evidence="$evidence /tmp/explain"
  grep -q 'its memory bounces between GPU.* and GPU' /tmp/words || fail "$1: uvmctl explain does not name the GPUs"
  grep -q "$2" /tmp/words || fail "$1: no remedy: $2"
  ! grep -q -- '--policy ping-pong' /tmp/words || fail "$1: uvmd's policy is for CPUs"
  wait $runner || { cat /tmp/run; fail "$1: the figures are not exact"; }
  cat /tmp/explain
}

for how in host nvlink; do
  nvlink='' remedy='at the host'
  if [ $how = nvlink ]; then nvlink=nvlink=1 remedy='at the GPU that uses it most'; fi
  # shellcheck disable=SC2086 # a word, or none
  load gpus=2 $nvlink
  key=${nvlink:+nvlink = true}
  scenario counted "{ repeat = 6, $turns }" "$key"
  scenario handed "{ cpu_write = \"shared\" }, { repeat = 1, $turns }" "$key"
  scenario lasting "{ repeat_for_ms = 20000, $turns }" "$key"
  start uvmd --listen 127.0.0.1:9477
  state_becomes counting
  # 8 blocks: 6 times to the second GPU, 5 times back; all but the first time, it had them before.
  expect $how counted "40,83886080 48,83886080 " 8
  # A CPU, one GPU, the other one: nothing comes back.
  expect $how handed "0,0 8,0 " 16
  verdict $how "$remedy"
  stop_uvmd
done
echo "ok: bounces between two GPUs, through the host and directly"
