#!/bin/sh
# actors in the cgroup of the target: charges, obstacles, confinement
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence='/tmp/told /tmp/target /proc/meminfo'
MIB=$((1 << 20))
CGROUPS=/sys/fs/cgroup
TARGETS=$CGROUPS/targets
ACTORS=$CGROUPS/actors
JOURNAL=/run/act.journal

echo '+memory +pids +cpu' >$CGROUPS/cgroup.subtree_control
mkdir $TARGETS $ACTORS

# act_out COMMAND...: what act says of it is in /tmp/told; it runs in a cgroup of its own.
act_out() { in_cgroup $ACTORS act --reserve-mib "${reserve_mib:-16}" "$@" >/tmp/told 2>&1 || fail "act $*"; }
expect_told() { grep -qE "$2" /tmp/told || fail "$1"; }
# become_in FOLDER COMMAND...: instead of this shell; in_cgroup: beside it.
become_in() {
  folder=$1
  shift
  # shellcheck disable=SC2016 # for the other shell
  exec sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$folder" "$@"
}
in_cgroup() { (become_in "$@"); }
used() { cat "$1/memory.current"; }
# The memory of a cgroup that the driver took for the kernel: what it has for managed memory of the host.
of_kernel() { awk '$1 == "kernel" { print $2 }' "$1/memory.stat"; }
# expect_charged WHAT CGROUP FROM AT_LEAST_MIB AT_MOST_MIB: how much more of it there is than there was.
expect_charged() {
  more=$(($(of_kernel "$2") - $3))
  { [ $more -ge $(($4 * MIB - MIB)) ] && [ $more -le $(($5 * MIB)) ]; } || fail "$1: $more bytes more in $2, and not $4 to $5 MiB"
}

# begin OPTION...: a process of $TARGETS that rests and has 16 MiB at $held, as $pid.
begin() {
  rm -f /tmp/target
  become_in $TARGETS lab-runner churn --log /tmp/churn.log --calls 1 --rest 600 "$@" >/tmp/target 2>&1 &
  runner=$!
  within 60 "the target does not begin" grep -q held /tmp/target
  held=$(sed -n 's/^held //p' /tmp/target)
  pid=$(head -n 1 $TARGETS/cgroup.procs)
}
finish() {
  kill -9 "$pid"
  wait $runner
  within 20 "somebody holds the VA space of a process that has ended" is_let_go
}
is_let_go() { [ "$(cat /sys/module/nvidia_uvm/refcnt)" = 0 ]; }
is_empty() { grep -qx 'populated 0' "$1/cgroup.events"; }
actors() { pidof uvmd-actor | wc -w; }

state_becomes counting

# --- who is charged
for kind in '' --shared; do
  # Nothing of it is in the host: the driver keeps what once was.
  # shellcheck disable=SC2086 # a word or none
  begin --untouched $kind
  # shellcheck disable=SC2086 # two words
  act_out "migrate_to_gpu $pid $held"
  expect_told "to the GPU" '"calls":\{"done":8\}'
  targets=$(of_kernel $TARGETS)
  mkdir $CGROUPS/mover
  become_in $CGROUPS/mover act --reserve-mib 16 "migrate_to_host $pid $held" "sleep 600" >/tmp/told 2>&1 &
  mover=$!
  within 60 "nothing moves to the host" grep -q '"action":"migrate_to_host","calls":{"done":8}' /tmp/told
  expect_charged "16 MiB to the host${kind:+, of a VA space that is shared}" $TARGETS "$targets" 12 20
  [ "$(used $CGROUPS/mover)" -lt $((8 * MIB)) ] || fail "whoever acts is charged $(used $CGROUPS/mover) bytes"
  kill $mover
  wait $mover 2>/dev/null
  within 10 "something is left of who acted" rmdir $CGROUPS/mover
  finish
done
echo "who is charged: the target, whichever kind of VA space it has"

# --- what an actor takes itself
begin
mkdir $CGROUPS/fresh
echo "$pid" >$CGROUPS/fresh/cgroup.procs
# Advice takes no memory of the host's but what making the call takes.
act_out "accessed_by $pid $held" "unset_accessed_by $pid $held"
expect_told "advice" '"action":"unset_accessed_by","calls":\{"done":1\}'
took=$(cat $CGROUPS/fresh/memory.peak)
{ [ "$took" -gt 0 ] && [ "$took" -le $MIB ]; } || fail "an actor took $took bytes of its target's memory"
echo "$pid" >$TARGETS/cgroup.procs
rmdir $CGROUPS/fresh
echo "footprint: $took bytes of the target's cgroup at most"

# --- where it may not be: what belongs to the process is acted on from outside of its cgroup all the same
# refused_in_shared WHY: of the other kind nothing is done; of this kind it is.
acted_on() {
  # shellcheck disable=SC2154 # set by begin
  act_out "accessed_by $pid $held" "unset_accessed_by $pid $held"
  expect_told "$1: advice from outside" '"action":"unset_accessed_by","calls":\{"done":1\}'
}
refused() {
  act_out "accessed_by $pid $held" "migrate_to_host $pid $held"
  expect_told "$1: refused" '"action":"accessed_by","calls":\{"failed":1\}'
  expect_told "$1: and why" "the caller, and no actor can be placed in its cgroup: .*$2"
  expect_told "$1: of a move too" '"action":"migrate_to_host","calls":\{"failed":1\}'
  [ "$(actors)" = 0 ] || fail "$1: an actor is left"
}
for kind in '' --shared; do
  expect=acted_on
  if [ -n "$kind" ]; then
    expect=refused
    begin --shared
  fi
  echo $(($(cat $TARGETS/pids.current) + 8)) >$TARGETS/pids.max
  $expect "too many processes" 'pids.max of /sys/fs/cgroup/targets leaves less than 8'
  echo max >$TARGETS/pids.max
  # There is no limit, and need be none: the node's memory ends too.
  echo 1 >$TARGETS/memory.oom.group
  $expect "a group" 'memory.oom.group of /sys/fs/cgroup/targets is set'
  echo 0 >$TARGETS/memory.oom.group
  echo $(($(used $TARGETS) + MIB / 2)) >$TARGETS/memory.max
  $expect "no room" 'less than 1024 KiB are left'
  echo max >$TARGETS/memory.max
  echo 1 >$TARGETS/cgroup.freeze
  within 10 "the target does not freeze" grep -qx 'frozen 1' $TARGETS/cgroup.events
  $expect "frozen" '/sys/fs/cgroup/targets is frozen'
  echo 0 >$TARGETS/cgroup.freeze
  act_out "accessed_by $pid $held" "unset_accessed_by $pid $held"
  expect_told "in its cgroup again" '"action":"unset_accessed_by","calls":\{"done":1\}'
  [ "$(cat $TARGETS/pids.events)" = "max 0" ] || fail "the kernel had to refuse a process"
  finish
done
echo "no place: what belongs to its process is acted on all the same, and nothing else is"

# --- a target that has the driver let go of its memory: the driver charges nobody, and so not whoever acts, from wherever
begin --untouched --forget-when /tmp/forget
act_out "migrate_to_gpu $pid $held"
expect_told "to the GPU" '"calls":\{"done":8\}'
: >/tmp/forget
within 20 "the target does not forget" [ ! -e /tmp/forget ]
targets=$(of_kernel $TARGETS)
echo $(($(cat $TARGETS/pids.current) + 8)) >$TARGETS/pids.max
mkdir $CGROUPS/mover
become_in $CGROUPS/mover act --reserve-mib 16 "migrate_to_host $pid $held" "sleep 600" >/tmp/told 2>&1 &
mover=$!
within 60 "nothing moves to the host" grep -q '"action":"migrate_to_host","calls":{"done":8}' /tmp/told
[ "$(used $CGROUPS/mover)" -lt $((8 * MIB)) ] || fail "whoever acts is charged $(used $CGROUPS/mover) bytes"
expect_charged "of a target that the driver forgot" $TARGETS "$targets" 0 1
kill $mover
wait $mover 2>/dev/null
within 10 "something is left of who acted" rmdir $CGROUPS/mover
echo max >$TARGETS/pids.max
finish
echo "forgotten by the driver: nobody is charged"

# --- who is killed first for want of memory, and who may not signal it
begin
become_in $ACTORS act --reserve-mib 16 "shuttle $pid $held" >/tmp/told 2>&1 &
actor=$!
is_killed_first() { [ "$(cat "/proc/$(pidof uvmd-actor)/oom_score_adj" 2>/dev/null)" = 1000 ]; }
has_own_user() { grep -q '^Uid:.4000000019.4000000019.4000000019.4000000019$' "/proc/$(pidof uvmd-actor)/status" 2>/dev/null; }
within 60 "no actor is the first to be killed" is_killed_first
within 60 "no actor has a user of its own" has_own_user
for of_uvmd in $actor "$(pidof uvmd-spawner)"; do
  [ "$(cat "/proc/$of_uvmd/oom_score_adj")" = 0 ] || fail "who acts, or its spawner, is killed first: process $of_uvmd"
done
finish
wait $actor || fail "whoever acts does not go on"
echo "who is killed first: the actor, and nobody in the cgroup of who acts"

# --- a target that has next to no processor time, nor has an actor in its cgroup: its order is given up, and others come first for a while.
# 28 calls, which no host is fast enough for: eight of them took just less than 30 s once.
begin --mib 56
rm -f $JOURNAL
act_out --journal $JOURNAL "accessed_by $pid $held"
echo "1000 1000000" >$TARGETS/cpu.max
begun=$(cut -d . -f 1 /proc/uptime)
: >/tmp/told
become_in $ACTORS act --reserve-mib 16 --journal $JOURNAL "migrate_to_gpu $pid $held" "migrate_to_host $pid $held" "sleep 20" undo >/tmp/told 2>&1 &
actor=$!
within 120 "a slow target is not given up" grep -q '"action":"migrate_to_gpu"' /tmp/told
waited=$(($(cut -d . -f 1 /proc/uptime) - begun))
within 20 "others do not come first" grep -q '"action":"migrate_to_host","calls":{"denied":1}' /tmp/told
echo max >$TARGETS/cpu.max
wait $actor || fail "whoever acts does not go on"
expect_told "what is left of the order" '"action":"migrate_to_gpu","calls":\{.*"failed":[1-9].*gave up: its calls took more than 30 s in total'
expect_told "withdrawn all the same" '"action":"unset_accessed_by","calls":\{"done":2\}'
[ $waited -le 70 ] || fail "the order took $waited s"
rm -f $JOURNAL
echo "next to no processor time: given up after $waited s, held back, and withdrawn from"
finish

# --- a cgroup whose memory runs out in the middle: of all that are in it the actor goes
begin --untouched --shared
act_out "migrate_to_gpu $pid $held"
echo $(($(used $TARGETS) + 6 * MIB)) >$TARGETS/memory.max
: >/tmp/told
reserve_mib=0
act_out "migrate_to_host $pid $held"
reserve_mib=16
kill -0 "$pid" || fail "the target is gone"
expect_told "some is refused" '"(host_memory|failed)":[1-9]'
echo max >$TARGETS/memory.max
echo "full: refused, and the target lives"
finish

# --- kill -9 of whoever acts, in the middle of a call
begin
for _ in 1 2 3 4 5; do
  : >/tmp/told
  become_in $ACTORS act --reserve-mib 16 --journal $JOURNAL "shuttle $pid $held" >/tmp/told 2>&1 &
  killed=$!
  within 60 "it does not move" grep -q '"done"' /tmp/told
  within 20 "there is no actor" pidof uvmd-actor >/dev/null
  kill -9 $killed
  wait $killed 2>/dev/null
  is_gone() { [ "$(actors)" = 0 ] && ! pidof uvmd-spawner >/dev/null; }
  within 20 "an actor outlives who started it" is_gone
done
[ "$(cat $TARGETS/cgroup.procs)" = "$pid" ] || fail "somebody else is left in the target's cgroup"
within 20 "something is left where it acted" is_empty $ACTORS
echo "kill -9 in the middle of a call: nothing is left"
finish

# --- kill -9 of what starts actors: the order fails, and the next one has another
begin
: >/tmp/told
become_in $ACTORS act --reserve-mib 16 "migrate_to_gpu $pid $held" "sleep 5" "migrate_to_host $pid $held" "sleep 2" "migrate_to_host $pid $held" >/tmp/told 2>&1 &
actor=$!
within 60 "it does not move" grep -q '"done"' /tmp/told
kill -9 "$(pidof uvmd-spawner)"
wait $actor || fail "whoever acts does not go on"
expect_told "a spawner that was killed" '"calls":\{"failed":1\}.*"reason":"the actor spawner does not answer'
expect_told "the next" '"calls":\{"done":8\},"link_bytes":\[0,16777216\]'
echo "kill -9 of what starts actors: said so, and another is started"
finish

# --- a step that ends: its cgroup is empty and goes, whatever is done to it
begin
: >/tmp/told
become_in $ACTORS act --reserve-mib 16 "shuttle $pid $held" "sleep 600" >/tmp/told 2>&1 &
actor=$!
within 60 "it does not move" grep -q '"done"' /tmp/told
kill -9 "$pid"
wait $runner
within 5 "the cgroup does not empty" is_empty $TARGETS
rmdir $TARGETS || fail "the cgroup cannot be removed"
within 20 "somebody holds the VA space of a process that has ended" is_let_go

! grep -q '"host_memory"' /tmp/told || fail "it had no room"
kill -0 $actor || fail "whoever acts is gone"
kill $actor
wait $actor 2>/dev/null
mkdir $TARGETS
echo "a step that ends: its cgroup goes at once"

# --- thousands of descriptors of a VA space
# shellcheck disable=SC3045 # busybox has it
ulimit -n 4096
begin --descriptors 2000
act_out "migrate_to_gpu $pid $held" "migrate_to_host $pid $held"
expect_told "with 2,000 descriptors" '"action":"migrate_to_host","calls":\{"done":8\}'
# shellcheck disable=SC2086 # two words
sh -c "ulimit -n 64 && act --reserve-mib 16 'migrate_to_gpu $pid $held'" >/tmp/told 2>&1 || fail "act with few files"
expect_told "with room for 64 files here" '"calls":\{"done":8\}'
echo "2,000 descriptors: as one"
finish

# --- a process without its first thread
begin --without-first-thread
[ ! -s "/proc/$pid/maps" ] || fail "its first thread lives"
act_out "migrate_to_gpu $pid $held" "accessed_by $pid $held"
expect_told "it has its memory" '"action":"migrate_to_gpu","calls":\{"done":8\}'
expect_told "and takes advice" '"action":"accessed_by","calls":\{"done":1\}'
rm -f $JOURNAL
act_out --journal $JOURNAL "accessed_by $pid $held"
act_out --journal $JOURNAL undo
expect_told "which is not forgotten" '"leftovers": 1'
expect_told "but withdrawn" '"action":"unset_accessed_by","calls":\{"done":1\}'
echo "without its first thread: as any other"
finish
