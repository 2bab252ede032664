#!/bin/sh
# uvmd waits for the driver, attaches when it appears, survives its removal and attaches again
# set: LAB_DRIVER=no
set -u
fail() { echo "FAILED: $*"; exit 1; }
# state_becomes STATE: within 20 s
state_becomes() {
  i=0
  until uvmctl status --json 2>/dev/null | tee /tmp/status | grep -q "\"state\": *\"$1\""; do
    i=$((i + 1))
    [ $i -lt 100 ] || { cat /tmp/status; fail "the state did not become $1"; }
    sleep 0.2
  done
  echo "state: $1"
}

state_becomes waiting
grep -q 'nvidia.uvm' /tmp/status || fail "it does not say that nvidia-uvm is missing"
for round in 1 2; do
  insmod /lib/modules/nvidia.ko arch=hopper memory_mib=64 || fail "nvidia.ko"
  insmod /lib/modules/nvidia-uvm.ko || fail "nvidia-uvm.ko"
  state_becomes counting
  [ "$(wc -l </sys/kernel/debug/kprobes/list)" -gt 0 ] || fail "round $round: no probe is attached"
  rmmod nvidia-uvm || fail "uvmd holds the module"
  rmmod nvidia || fail "nvidia.ko is held"
  state_becomes waiting
done
echo "ok"
