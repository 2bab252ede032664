#!/bin/sh
# another process's memory is moved and counted exactly; its death does no harm
# guest: shared
# set: LAB_UVMD=no
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence="/tmp/loop /tmp/told /tmp/ps $UVMD_LOG"
# field NAME: the number that gpu-check told last.
field() { sed -n "s/.*\"$1\": *\([a-z0-9]*\).*/\1/p" /tmp/told; }
# The pid of the process that uvmd knows by that name, with all of its memory mapped.
find_target() { pid=$(pidof moved) && uvmctl ps -o json >/tmp/ps 2>/dev/null && grep -q '"name": *"moved"' /tmp/ps && [ "$(grep -c "$ALL_THERE" "/proc/$pid/smaps")" = 1 ]; }

MIB=16
BYTES=$((MIB << 20))
ALL_THERE="^Size: *$((BYTES / 1024)) kB"
cat >/tmp/work.toml <<SCENARIO
name = "work"
[[process]]
name = "moved"
alloc = [{ name = "a", mib = $MIB }]
steps = [{ cpu_write = "a" }, { sleep_ms = 600000 }]
SCENARIO
start_target() {
  lab-runner loop /tmp/work.toml >/tmp/loop 2>&1 &
  runner=$!
  within 30 "the process does not begin" find_target
  # It sleeps when it has written everything.
  within 30 "the process does not come to rest" grep -q 'State:.*S (sleeping)' "/proc/$pid/status"
  sleep 2
}
# move WHERE BYTES_TO_GPU BYTES_TO_HOST
move() {
  gpu-check process "$pid" --migrate-to "$1" --gpu-uuid "$gpu" >/tmp/told 2>&1 || fail "moving to the $1"
  [ "$(field managed_bytes)" = $BYTES ] || fail "the managed memory is not found"
  [ "$(field bytes_htod) $(field bytes_dtoh)" = "$2 $3" ] || fail "moving to the $1 was to cost $2 bytes to the GPU and $3 to the host"
  [ "$(field fault_entries)" = 0 ] || fail "a move is not a fault"
}

start uvmd
state_becomes counting
start_target
# Up to 560 the driver calls it UVM-GPU-...
gpu=$(echo /proc/driver/nvidia-uvm/gpus/*GPU-*)
gpu=GPU-${gpu#*GPU-}
move gpu $BYTES 0
move gpu 0 0
move cpu 0 $BYTES
move gpu $BYTES 0
# uvmd saw the same from the other side.
uvmctl ps -o json >/tmp/ps || fail "uvmctl ps"
htod=$(sed -n 's/.*"bytes_htod": *\([0-9]*\).*/\1/p' /tmp/ps | head -n 1)
[ "$htod" = $((2 * BYTES)) ] || fail "uvmd counted $htod bytes to the GPU, and not $((2 * BYTES))"

# What is not there, or not reachable, is one clear message.
! gpu-check process 1 >/tmp/told 2>&1 || fail "a process without the driver"
grep -q 'process 1 has no descriptor of a VA space' /tmp/told || fail "the message for a process without the driver"
! gpu-check process 99999 >/tmp/told 2>&1 || fail "no process"
grep -q 'there is no process 99999' /tmp/told || fail "the message for no process"

# Its data is right after all that.
kill -TERM $runner
wait $runner || fail "the data is not right"

# Watched while it is killed: the watcher lets go, and the driver can be unloaded.
start_target
gpu-check process "$pid" --watch-ms 600000 >/tmp/told 2>&1 &
watcher=$!
sleep 2
kill -9 "$pid"
wait $watcher || fail "the watcher of a killed process"
[ "$(field has_exited)" = true ] || fail "the watcher did not see the end"
wait $runner
! gpu-check process "$pid" >/tmp/told 2>&1 || fail "a killed process"
within 20 "the driver is still in use" sh -c 'rmmod nvidia-uvm 2>/dev/null'
stop_uvmd
echo "ok: $MIB MiB moved back and forth, counted exactly, and verified"
