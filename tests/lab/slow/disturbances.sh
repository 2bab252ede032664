#!/bin/sh
# while uvmd acts: clocks that are set, frozen cgroups, a second uvmd, an unloaded driver
# set: LAB_UVMD=no
# timeout: 1200
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
# shellcheck source=lab/vm/guest
. /lab/guest
# shellcheck source=lab/vm/link
. /lab/link
evidence="/tmp/answer /tmp/ps $UVMD_LOG"
HOUR=3600
YEAR=$((365 * 24 * HOUR))
STATE=/run/state
AUDIT=$STATE/audit.jsonl
OFF=/run/policy.off
CGROUPS=/sys/fs/cgroup
policy="--set policy.enabled=true --set policy.mode=act --set policy.policy=ping-pong --set policy.kill_switch=$OFF"

metric() { wget -q -O - http://127.0.0.1:9477/metrics | awk -v name="$1" 'index($1, name) == 1 { sum += $2 } END { printf "%d\n", sum }'; }

# target NAME: a process whose memory goes back and forth unless it is advised, in a cgroup of its name, as $pid and $runner.
target() {
  cat >/tmp/target.toml <<SCENARIO
name = "$1"
[[process]]
name = "$1"
alloc = [{ name = "a", mib = 8 }]
steps = [{ cpu_write = "a" }, { gpu_read = "a", access_rate = 32 }, { sleep_ms = 50 }]
SCENARIO
  mkdir -p "$CGROUPS/$1"
  # shellcheck disable=SC2016 # for the other shell
  sh -c 'echo $$ >"$0/cgroup.procs" && exec lab-runner loop /tmp/target.toml' "$CGROUPS/$1" >/tmp/target 2>&1 &
  runner=$!
  name=$1
  within 60 "the target $1 does not begin" has_begun
}
has_begun() { pid=$(pidof "$name"); }
rounds() { grep -c '^round' /tmp/target; }
goes_on() { [ "$(rounds)" -gt "$before" ]; }
# Its data is right after all that was done to it.
ends_well() {
  kill -TERM "$runner"
  wait "$runner" || fail "the data of $name is not right"
}
# ordered AUDIT PID ROLLBACK: how many orders of this kind were carried out.
ordered() { grep '"type":"decision_applied"' "$1" 2>/dev/null | grep "\"pid\":$2," | grep -c "\"is_rollback\":$3"; }
is_frozen() { grep -qx 'frozen 1' "$1/cgroup.events"; }
freeze() {
  echo 1 >"$1/cgroup.freeze"
  within 10 "$1 does not freeze" is_frozen "$1"
}
thaw() { echo 0 >"$1/cgroup.freeze"; }

# shellcheck disable=SC2086 # words
start uvmd $policy --set policy.state_dir=$STATE --set collector.ended_retention=30m
state_becomes counting

# --- a clock that is set
target early
before=0
within 60 "the target does nothing" goes_on
ends_well
target acted-on
within 30 "uvmd does not act" is_accessed
uvmctl policy set --uid 4242 --mode observe --expires 2h >/tmp/answer 2>&1 || fail "no override"
is_listed() { uvmctl ps --all >/tmp/ps 2>/dev/null && grep -q early /tmp/ps; }
has_expired() { ! uvmctl policy list -o json 2>/dev/null | grep -q 4242; }
within 10 "a process that has exited is not listed" is_listed
faults=$(metric uvm_gpu_faults_total)
for set_by in $HOUR -$HOUR -$((2 * YEAR)) $((3 * YEAR)); do
  date -s "@$(($(date +%s) + set_by))" >/dev/null || fail "the clock cannot be set"
  # Time in which it could forget.
  sleep 3
  within 10 "set by $set_by s: it does not count" state_is counting
  within 10 "set by $set_by s: a process that exited a moment ago is forgotten" is_listed
  within 10 "set by $set_by s: the advice is not in force" is_accessed
  [ "$(metric uvm_owner_verdict_seconds_total)" -lt $HOUR ] || fail "set by $set_by s: verdicts held for $(metric uvm_owner_verdict_seconds_total) s"
done
within 10 "an override does not expire with the clock" has_expired
# uvmd withdraws and advises by the clock as it is now, too.
touch $OFF
within 10 "the advice is not withdrawn" is_copied
rm $OFF
within 30 "uvmd does not act again" is_accessed
[ "$(metric uvm_gpu_faults_total)" -gt "$faults" ] || fail "no fault was counted since"
echo "a clock that is set: overrides expire, and nothing else changes"

# --- a frozen target: its advice can be withdrawn, and it goes on
freeze $CGROUPS/acted-on
withdrawn=$(ordered $AUDIT "$pid" true)
touch $OFF
is_withdrawn() { [ "$(ordered $AUDIT "$pid" true)" -gt "$withdrawn" ]; }
within 30 "nothing is withdrawn from a frozen process" is_withdrawn
state_is counting || fail "it does not count"
before=$(rounds)
thaw $CGROUPS/acted-on
within 30 "the target does not go on" goes_on
within 10 "the advice is still in force" is_copied
rm $OFF
within 30 "uvmd does not act again" is_accessed
echo "a frozen target: withdrawn from while it is frozen"

# --- a frozen uvmd: nobody waits for it, and nothing is done late
mkdir $CGROUPS/service
# shellcheck disable=SC2154 # set by start
for each in $uvmd $(pidof uvmd-spawner); do echo "$each" >$CGROUPS/service/cgroup.procs; done
freeze $CGROUPS/service
before=$(rounds)
within 30 "the target waits for a frozen uvmd" goes_on
is_accessed || fail "the driver forgot the advice"
touch $OFF
acted=$(ordered $AUDIT "$pid" false)
sleep 10
thaw $CGROUPS/service
within 30 "it does not answer" answers
within 10 "what was switched off meanwhile is in force" is_copied
[ "$(ordered $AUDIT "$pid" false)" = "$acted" ] || fail "late orders: $(ordered $AUDIT "$pid" false), and before $acted"
rm $OFF
within 30 "uvmd does not act again" is_accessed
echo "a frozen uvmd: nothing is done late"

# --- a second uvmd
other="--listen 127.0.0.1:9478 --set socket.path=/run/other/uvmd.sock"
# shellcheck disable=SC2086 # words
! uvmd $policy $other --set policy.state_dir=$STATE >/tmp/answer 2>&1 || fail "a second uvmd with the same state"
grep -q "another uvmd keeps its state in $STATE" /tmp/answer || fail "it is not said why"
is_accessed || fail "a uvmd that does not start withdrew the advice"
# shellcheck disable=SC2086 # words
uvmd $policy $other --set policy.state_dir=/run/other-state >/run/other.log 2>&1 &
second=$!
evidence="$evidence /run/other.log"
counts() { uvmctl --url http://127.0.0.1:9478 status -o json 2>/dev/null | grep -q '"state": *"counting"'; }
within 30 "the second uvmd does not count" counts
ends_well
target shared
# acts AUDIT: whether what it ordered about the target is in force.
acts() { [ "$(ordered "$1" "$pid" false)" -gt "$(ordered "$1" "$pid" true)" ]; }
either_acts() { acts $AUDIT || acts /run/other-state/audit.jsonl; }
within 120 "neither acts" either_acts
sleep 10
! acts $AUDIT || ! acts /run/other-state/audit.jsonl || fail "two uvmd act on one process"
kill -TERM $second
wait $second || fail "the second uvmd left advice"
ends_well
echo "a second uvmd: one of the two acts on a process"

# --- a driver that leaves
target leaves
within 30 "uvmd does not act" is_accessed
! rmmod nvidia-uvm 2>/dev/null || fail "the driver left while it was in use"
kill -9 "$pid"
wait "$runner"
unloads() { rmmod nvidia-uvm 2>/dev/null; }
within 10 "uvmd holds the driver" unloads
rmmod nvidia || fail "nvidia.ko is held"
state_becomes waiting
old=$pid orders=$(grep -c "\"pid\":$pid," $AUDIT)
load_driver || fail "the driver does not load again"
state_becomes counting
target comes
within 30 "uvmd does not act on the driver that was loaded again" is_accessed
[ "$(grep '"type":"decision_applied"' $AUDIT | grep -c "\"pid\":$old,")" -le "$orders" ] || fail "orders about a process of the former driver"
ends_well
stop_uvmd
echo "a driver that leaves: let go at once, and nothing is carried over"
echo "ok"
