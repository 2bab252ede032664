#!/bin/sh
# What counting costs: guest instructions of workloads, without uvmd and with each of its sources, in turn. `scripts/lab cost` runs it and prints
# the table.
# set: LAB_UVMD=no
# clock: instructions
# gpu_mem_mib: 256
# timeout: 3600
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence="/tmp/status /tmp/events $UVMD_LOG"
# shellcheck disable=SC2086 # words: rounds, MiB, iterations
set -- ${COST:-1 16 3}
rounds=$1 mib=$2 iterations=$3
KPROBES=/sys/bus/event_source/devices

# The kernel shows its kprobe support here; an empty folder over it is a kernel without.
observe() {
  case $1 in
    nothing) return ;;
    probes) start uvmd --set collector.source=probes ;;
    fentry) mount -t tmpfs nodev $KPROBES && start uvmd --set collector.source=probes ;;
    *) start uvmd --set collector.source=tools --set "collector.tools_level=$1" ;;
  esac
  state_becomes counting
  [ "$1" != fentry ] || grep -q '"attachment": *"fentry"' /tmp/status || fail "the probes are not attached by fentry"
}

ignore() {
  [ "$1" = nothing ] || stop_uvmd
  [ "$1" != fentry ] || umount $KPROBES
}

has_begun() { grep -q '"event":"begun"' /tmp/events; }
# The process in uvmd: once it is there, it is counted.
is_counted() { wget -qO /tmp/process "http://127.0.0.1:9477/api/v1/processes/$workload" 2>/dev/null; }
figure() { tr -d ' \n' </tmp/process | grep -o "\"$1\":[0-9]*" | sed -n '1s/.*://p'; }

# work ROUND CONDITION WORKLOAD: prints the phases, with their times: 1 ns is an instruction of all processors together.
work() {
  rm -f /tmp/process
  LD_LIBRARY_PATH=/lab/cuda uvm-workload "$3" --hold --mib "$mib" --iterations "$iterations" </tmp/resume >/tmp/events 2>&1 &
  workload=$!
  exec 5>/tmp/resume
  within 60 "the workload does not begin" has_begun
  [ "$2" = nothing ] || within 20 "the workload is not counted" is_counted
  # A line for each pause: none is waited for.
  yes '' | head -n 1000 >&5
  wait $workload || fail "$3 failed"
  exec 5>&-
  grep '"event":"done"' /tmp/events | while read -r phase; do echo "cost $1 $2 $3 $phase"; done
  [ "$2" = nothing ] || { is_final && echo "faults $1 $2 $3 $(figure fault_entries) $(figure cpu_faults)"; }
}
# All that was counted is read soon after the end.
is_final() { sleep 2 && is_counted; }

mkfifo /tmp/resume
for round in $(seq "$rounds"); do
  for condition in nothing counters kinds moves faults probes fentry; do
    observe $condition
    sleep 1
    for name in cpu-write-gpu-read ping-pong read-mostly; do work "$round" $condition $name; done
    ignore $condition
  done
done
echo ok
