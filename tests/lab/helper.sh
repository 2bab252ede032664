#!/bin/sh
# calls that a program records with the helper are shown, counted, and a trace
# guest: shared
# set: LAB_UVMD=no
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence="/tmp/program /tmp/ops /tmp/answer $UVMD_LOG"
start uvmd
state_becomes counting

# launch PREFIX...: a workload, with this before it
launch() {
  CUDA_LAB_LOG=/tmp/log LD_LIBRARY_PATH=/lab/cuda "$@" uvm-workload --mib 4 --iterations 40 prefetch-back >/tmp/program 2>&1 &
  program=$!
}
is_seen() { uvmctl ps --all -o name 2>/dev/null | grep -qx "process/$program"; }
is_recorded() { uvmctl ops "$program" -o json >/tmp/ops 2>/tmp/answer; }

launch env
within 120 "the program without the helper is not seen" is_seen
! is_recorded || fail "calls of a program without the helper are shown"
grep -q "no calls of process $program are recorded: the helper is not in it, or is off" /tmp/answer || fail "there is no reason why there are no calls"
wait "$program" || fail "the program without the helper fails"

rm -f /tmp/log*
launch uvmctl run --
within 120 "the calls of the program are not shown" is_recorded
grep -q '"state": *"recording"' /tmp/ops || fail "it is not recording"
wait "$program" || fail "the program with the helper fails"
has_ended() { is_recorded && grep -q '"state": *"ended"' /tmp/ops; }
within 60 "the end of the program is not seen" has_ended

# What the driver logged, in the names of the API: each op as often.
all_calls_are_recorded "$program" /tmp/log*
[ "$(recorded_calls launch)" = "$(count_op launch /tmp/log*)" ] || fail "the driver logged other launches"
[ "$(recorded_calls prefetch)" -gt 40 ] || fail "the program prefetched less than it does"

uvmctl ops "$program" --trace /tmp/program.trace || fail "no trace is written"
uvmctl plan pool --trace /tmp/program.trace --mallocs 2 || fail "the planner does not take the trace"
uvmctl ops "$program" --last 5 || fail "no list"

# In a cgroup with 4 MiB beside what the program takes itself, the ring is not made, and the kernel kills nobody.
echo +memory >/sys/fs/cgroup/cgroup.subtree_control || fail "there is no cgroup of memory"
tight=/sys/fs/cgroup/tight
mkdir $tight
confined() { launch sh -c "echo \$\$ >$tight/cgroup.procs && exec \"\$@\"" sh "$@"; }
confined env
wait "$program" || fail "the program fails in a cgroup"
peak=$(cat $tight/memory.peak)
echo $((peak + (4 << 20))) >$tight/memory.max
confined env LD_PRELOAD=/usr/lib/uvmd/libuvmd_helper.so UVMD_HELPER=record
within 120 "the confined program is not seen" is_seen
wait "$program" || fail "the program with the helper fails with 4 MiB beside its own $peak bytes"
grep -qx 'oom_kill 0' $tight/memory.events || fail "the kernel killed for want of memory: $(cat $tight/memory.events)"
! is_recorded || fail "a ring was made with 4 MiB left"
grep -q "no calls of process $program are recorded" /tmp/answer || fail "it is not said why there are no calls of the confined program"
echo max >$tight/memory.max
confined env LD_PRELOAD=/usr/lib/uvmd/libuvmd_helper.so UVMD_HELPER=record
within 120 "with enough memory in its cgroup, the program's calls are not shown" is_recorded
wait "$program" || fail "the program with the helper fails in a cgroup"

# A program that may not preload anything is refused, and not run.
cp /bin/busybox /tmp/static
! uvmctl run -- /tmp/static echo ran >/tmp/answer 2>&1 || fail "a static program is run"
grep -q "is linked statically" /tmp/answer || fail "it is not said why it is refused"
stop_uvmd
echo "ok"
