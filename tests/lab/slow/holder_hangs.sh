#!/bin/sh
# a holder that hangs is killed: GPU memory is free, its user is named and is counted again after a minute, others are counted all the time
# set: LAB_UVMD=no
# timeout: 600
# clock: instructions
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence="/tmp/attack /tmp/run /tmp/process /tmp/status $UVMD_LOG"
CGROUP=/sys/fs/cgroup/hung
NOBODY=65534

chmod 666 /dev/nvidia-uvm /dev/swgpu
start uvmd --set collector.source=tools
state_becomes counting

# begin_faults: a process of a user without privileges, as $attack
begin_faults() {
  : >/tmp/attack
  lab-runner attack faults >/tmp/attack 2>&1 &
  attack=$!
  has_begun() { grep -q '^attack' /tmp/attack; }
  within 120 "the process with faults does not begin" has_begun
}
faults() { wget -qO /tmp/process "http://127.0.0.1:9477/api/v1/processes/$attack" 2>/dev/null && grep -o '"fault_entries": *[0-9]*' /tmp/process | head -n 1 | tr -dc 0-9; }
is_counted() { counted=$(faults) && [ "${counted:-0}" -gt 0 ]; }
# named REASON: states of that reason
named() { answers && tr -d '\n' <"/tmp/status" | grep -o "\"reason\": *\"$1\"[^}]*"; }
is_over() { answers && ! grep -q "\"reason\": *\"$1\"" /tmp/status; }
has_trackers() { for fd in "/proc/$1/fd"/*; do readlink "$fd"; done 2>/dev/null | grep -q nvidia-uvm-tools; }
holder() {
  for folder in /proc/[0-9]*; do
    [ "$(cat "$folder/comm" 2>/dev/null)" != uvmd-holder ] || ! has_trackers "${folder#/proc/}" || echo "${folder#/proc/}"
  done
}
free=$(lab-runner free-memory)
is_free() { [ "$(lab-runner free-memory)" = "$free" ]; }

# --- its threads are frozen as by a driver that does not return: it is not stopped by a signal
begin_faults
within 15 "a process with faults is not counted" is_counted
hung=$(holder)
[ "$(echo "$hung" | wc -w)" = 1 ] || fail "there is another number of holders than one: $hung"
mkdir $CGROUP || fail "there are no cgroups"
echo "$hung" >$CGROUP/cgroup.procs
echo 1 >$CGROUP/cgroup.freeze
is_frozen() { grep -q 'frozen 1' $CGROUP/cgroup.events; }
within 5 "the holder is not frozen" is_frozen
grep '^State' "/proc/$hung/status"
kill -9 "$attack"
wait "$attack" 2>/dev/null
! is_free || fail "the GPU memory of a process with a hung holder is free by itself"
within 20 "GPU memory is still in use after its holder hung" is_free
within 5 "the state does not name a holder that hangs" named holder_hangs >/tmp/named
grep -q "\"uid\": *$NOBODY" /tmp/named || fail "another user is named: $(cat /tmp/named)"
cat /tmp/named

# --- others are counted, and the user is not, until a minute has passed
cat >/tmp/honest.toml <<'SCENARIO'
name = "honest"
[[process]]
name = "honest"
alloc = [{ name = "a", mib = 4 }]
steps = [{ repeat = 4, steps = [{ cpu_write = "a" }, { gpu_write = "a" }] }, { verify = "a" }]
SCENARIO
lab-runner run --once --among-others /tmp/honest.toml >/tmp/run 2>&1 || fail "another user's program is not exact"
begin_faults
named holder_hangs >/dev/null || fail "the state ended before a minute had passed"
! is_counted || fail "the user is counted while the state says that it is not"
within 90 "the user is not counted again" is_counted
within 5 "the state does not end" is_over holder_hangs
# What it did before is missing, and that is said.
within 5 "the process that was counted late is not named" named attached_late >/tmp/named
cat /tmp/named
grep -q "\"pid\": *$attack" /tmp/named || fail "the process that was counted late is not named: $(cat /tmp/named)"
kill -9 "$attack"
wait "$attack" 2>/dev/null
within 5 "GPU memory is still in use" is_free
stop_uvmd
timeout 5 pidof uvmd && fail "a holder is left"
echo "ok"
