#!/bin/sh
# where the tools count, a hostile user is named, others are exact, and GPU memory is free a second after an exit
# LAB_ATTACKS: further kinds of attacks, which take the processor time that they get
# set: LAB_UVMD=no
# timeout: 900
# clock: instructions
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence="/tmp/attack /tmp/run /tmp/process /tmp/status $UVMD_LOG"
CGROUP=/sys/fs/cgroup/uvmd
MEMORY_MAX=$((64 << 20))

# --- uvmd and its holders are in a cgroup, by which memory and processor time are counted
echo +memory >/sys/fs/cgroup/cgroup.subtree_control || fail "there is no cgroup of memory"
mkdir $CGROUP
within_cgroup() { exec sh -c "echo \$\$ >$CGROUP/cgroup.procs && exec \"\$@\"" sh "$@"; }
# Processor time of uvmd so far, and of a process with its children that have ended, in hundredths of a second.
ticks_of_uvmd() { awk '$1 == "usage_usec" { print int($2 / 10000) }' $CGROUP/cpu.stat; }
ticks() { sed 's/.*) //' "/proc/$1/stat" | awk '{ print $12 + $13 + $14 + $15 }'; }
now() { cut -d ' ' -f 1 /proc/uptime | tr -d .; }
degraded() { answers && grep -q "\"reason\": *\"$1\"" /tmp/status; }

chmod 666 /dev/nvidia-uvm /dev/swgpu
start within_cgroup uvmd --set collector.source=tools
state_becomes counting
before=$(ticks_of_uvmd)
sleep 3
idle=$(($(ticks_of_uvmd) - before))

# begin KIND: an attack, as $attack
begin() {
  : >/tmp/attack
  lab-runner attack "$1" >/tmp/attack 2>&1 &
  attack=$!
  has_begun() { grep -q '^attack' /tmp/attack; }
  within 120 "the attack $1 does not begin" has_begun
}
end() {
  kill -9 "$attack"
  wait "$attack" 2>/dev/null
}
cat >/tmp/honest.toml <<'SCENARIO'
name = "honest"
[[process]]
name = "honest"
alloc = [{ name = "a", mib = 4 }]
steps = [{ repeat = 4, steps = [{ cpu_write = "a" }, { gpu_write = "a" }] }, { verify = "a" }]
SCENARIO
# honest KIND: a program of another user is found, and its counts are exact
honest() { lab-runner run --once --among-others /tmp/honest.toml >/tmp/run 2>&1 || fail "beside the attack $1, an honest program is not exact"; }
# named KIND: its user has reached a quota
named() {
  within 30 "the user of the attack $1 is not named" degraded tools_quota
  grep -q 'uid 65534.*VA spaces denied, and not counted' /tmp/status || fail "another user than that of the attack $1 is named"
}
# cost KIND PERCENT: of what the attack takes, at most this much is taken by uvmd, beside what it takes anyway and half a second
cost() {
  before=$(ticks_of_uvmd) taken=$(ticks "$attack")
  sleep 3
  taken=$(($(ticks "$attack") - taken)) own=$(($(ticks_of_uvmd) - before - idle))
  echo "attack $1: took $taken hundredths of a second, uvmd $own beside $idle"
  [ $((own - 50)) -le $((taken * $2 / 100)) ] || fail "uvmd took $own hundredths of a second for the $taken of the attack $1"
}
# --- the holder of the one user that has trackers
# trackers PID: number of those that a process holds
trackers() { for fd in "/proc/$1/fd"/*; do readlink "$fd"; done 2>/dev/null | grep -c nvidia-uvm-tools; }
holder() {
  for folder in /proc/[0-9]*; do
    [ "$(cat "$folder/comm" 2>/dev/null)" != uvmd-holder ] || [ "$(trackers "${folder#/proc/}")" = 0 ] || echo "${folder#/proc/}"
  done
}
is_attached() { [ -n "$(holder)" ]; }
# faults: those of the attack that are counted
faults() { wget -qO /tmp/process "http://127.0.0.1:9477/api/v1/processes/$attack" 2>/dev/null && grep -o '"fault_entries": *[0-9]*' /tmp/process | head -n 1 | tr -dc 0-9; }
has_grown_beyond() { counted=$(faults) && [ "${counted:-0}" -gt "$1" ]; }
free=$(lab-runner free-memory)
is_free() { [ "$(lab-runner free-memory)" = "$free" ]; }
# begin_faults: a process with GPU memory, which is counted
begin_faults() {
  begin faults
  within 15 "a process with faults is not counted" has_grown_beyond 0
  within 5 "there is no holder" is_attached
  ! is_free || fail "the process has no GPU memory"
}
# freed WHEN: the GPU's memory is free within a second from now
freed() {
  from=$(now)
  until is_free; do
    [ $(($(now) - from)) -le 100 ] || fail "GPU memory is still in use a second after the kill of $1"
  done
  echo "GPU memory is free $((($(now) - from) * 10)) ms after the kill of $1"
  wait "$attack" 2>/dev/null
}

begin_faults
kill -9 "$attack"
freed "a process"

begin_faults
kill -STOP "$attack"
sleep 2
kill -9 "$attack"
freed "a frozen process"

begin_faults
stopped=$(holder)
kill -STOP "$stopped"
kill -9 "$attack"
freed "a process whose holder is frozen"
# It is killed; its exit closes the trackers first.
has_exited() { ! grep -q '^State:[[:blank:]]*[RSDTt]' "/proc/$stopped/status" 2>/dev/null; }
within 5 "the frozen holder is still there" has_exited

begin_faults
killed=$(holder) counted=$(faults)
kill -9 "$killed"
within 10 "no other holder has the process of a killed one" is_attached
[ "$(holder)" != "$killed" ] || fail "the holder was not killed"
within 10 "the process is not counted after its holder was killed" has_grown_beyond $((counted + 20))
kill -9 "$attack"
freed "a process whose holder was killed"

# --- a VA space that changes its process has one holder at a time
begin relay
within 5 "a VA space that changes its process is not counted" is_attached
turns_held=0
for turn in 1 2 3 4 5 6; do
  sleep 1
  held=$(holder)
  [ -n "$held" ] || continue
  turns_held=$((turns_held + 1))
  [ "$(echo "$held" | wc -w)" = 1 ] || fail "turn $turn: a VA space that changes its process has the holders $held"
  [ "$(trackers "$held")" -le 3 ] || fail "turn $turn: a VA space that changes its process has $(trackers "$held") trackers"
done
[ $turns_held -ge 3 ] || fail "a VA space that changes its process is counted in $turns_held of 6 turns"
honest relay
cost relay 0
end
freed "processes that pass a VA space on"

# --- attacks beside an honest program
begin turnover && honest turnover && cost turnover 10 && end
begin surplus && named surplus && honest surplus && cost surplus 0 && end
for kind in ${LAB_ATTACKS:-}; do
  begin "$kind"
  case $kind in
    spaces) named spaces && percent=0 ;;
    *) percent=10 ;;
  esac
  honest "$kind"
  cost "$kind" "$percent"
  end
done
freed "the attacks"

# --- nothing is attached now: the driver can be unloaded, and uvmd has used little memory
is_unloaded() { rmmod nvidia-uvm 2>/dev/null; }
within 1 "the driver cannot be unloaded: something is attached" is_unloaded
state_becomes waiting
peak=$(cat $CGROUP/memory.peak)
echo "memory of uvmd and its holders: at most $((peak >> 20)) MiB"
[ "$peak" -le $MEMORY_MAX ] || fail "uvmd and its holders used $peak bytes"
stop_uvmd
echo "ok"
