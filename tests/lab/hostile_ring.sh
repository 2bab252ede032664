#!/bin/sh
# programs that write anything into their rings cost uvmd little, and an honest training neither records nor its plan
# LAB_ATTACKS: kinds of attacks, one after the other; LAB_ATTACK_SECONDS: how long each lasts
# set: LAB_UVMD=no
# set: LAB_SWGPU_PARAMETERS=gpus=2
# gpu_mem_mib: 32
# timeout: 1800
# clock: instructions
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence="/tmp/attack /tmp/idle /tmp/decisions /tmp/explained /tmp/training /tmp/chatty /tmp/filtered /tmp/ops $UVMD_LOG"
CGROUPS=/sys/fs/cgroup
MEMORY_MAX=$((256 << 20))

# --- cgroups, by which memory and processor time are counted
echo +memory >$CGROUPS/cgroup.subtree_control || fail "there is no cgroup of memory"
mkdir $CGROUPS/uvmd $CGROUPS/attack $CGROUPS/idle
# within_cgroup NAME COMMAND...: in place of this shell
within_cgroup() { exec sh -c "echo \$\$ >$CGROUPS/$1/cgroup.procs && shift && exec \"\$@\"" sh "$@"; }
# ticks NAME: processor time of a cgroup so far, in hundredths of a second. uvmd's has its accessors and planners, too
ticks() { awk '$1 == "usage_usec" { print int($2 / 10000) }' "$CGROUPS/$1/cpu.stat"; }
# memory_kib FIELD: of uvmd's cgroup
memory_kib() { awk -v field="$1" '$1 == field { print int($2 / 1024) }' $CGROUPS/uvmd/memory.stat; }
uvmd_is_alive() { grep -q '^State:.*[RSD] (' "/proc/$uvmd/status"; }

# --- users
echo 'trainer:x:1000:1000::/tmp:/bin/sh' >>/etc/passwd
chmod 666 /dev/nvidia-uvm /dev/swgpu
# launch NAME COMMAND...: a program of the honest user with what $preload names, as $launched. su removes the first --
launch() {
  name=$1
  shift
  : >"/tmp/$name"
  (exec su -s /bin/sh -c 'exec "$@"' -- trainer sh env LD_LIBRARY_PATH=/lab/cuda LD_PRELOAD="$preload" UVMD_HELPER=record "$@" >"/tmp/$name" 2>&1) &
  launched=$!
}
has_iterated() { [ "$(grep -c '^iteration' "/tmp/$1")" -ge "$2" ]; }
# is_right NAME PID: it ends when it is asked to, and its memory is right
is_right() {
  kill -TERM "$2" 2>/dev/null
  wait "$2" || fail "the $1 program ends with $?"
  grep '^right after' "/tmp/$1" || fail "the $1 program has no result"
}
is_recorded() { uvmctl ops "$1" --last 1 -o json >/tmp/ops 2>&1 && grep -q '"state": *"recording"' /tmp/ops; }
# is_whole NAME PID: all of its calls are recorded
is_whole() {
  is_recorded "$2" || fail "the $1 program is not recorded any more"
  for loss in calls_dropped calls_late calls_unrecorded records_unknown records_invalid; do
    grep -q "\"$loss\": *0[,}]" /tmp/ops || fail "the $1 program has $loss"
  done
}

start within_cgroup uvmd uvmd --set policy.enabled=true --set policy.mode=act --set policy.policy=auto-plan --set policy.state_dir=/run/state --set policy.host_reserve=64MiB
state_becomes counting

# --- idle rings of two users: each has as many as uvmd reads of a user, both together as many as it reads of the node
idle=''
: >/tmp/idle
for uid in 65532 65533; do
  (within_cgroup idle lab-runner attack idle --uid $uid >>/tmp/idle 2>&1) &
  idle="$idle $!"
done
all_idle() { [ "$(grep -c '^attack idle' /tmp/idle)" = 16 ]; }
within 60 "the idle rings do not begin" all_idle
# Until they were found: uvmd looks for two rings of a user in a second.
sleep 6

# --- the honest user: a training, and a program that makes nearly as many calls at once as a ring holds
preload=/usr/lib/uvmd/libuvmd_helper.so
launch training training 20 1000
training=$launched
launch chatty training 0 4000 14000
chatty=$launched
within 120 "the training does not begin" has_iterated training 2
within 120 "the chatty program does not begin" has_iterated chatty 2
within 30 "the training is not recorded" is_recorded $training
within 30 "the chatty program is not recorded" is_recorded $chatty
# They would keep the rings of others out.
# shellcheck disable=SC2086 # words
kill -9 $idle
# decided STAGE: the last decision about the training
decided() {
  uvmctl policy explain $training >/tmp/explained 2>&1
  uvmctl decisions --pid $training -n 1 -o json >/tmp/decisions 2>/dev/null && grep -q "\"stage\": *\"\($1\)\"" /tmp/decisions
}
within 300 "there is no plan for the training" decided trial
echo "a plan is on trial at iteration $(grep -c '^iteration' /tmp/training)"
# What uvmd takes without the attacks, in six seconds.
now() { cut -d ' ' -f 1 /proc/uptime | tr -d .; }
before=$(ticks uvmd) begun=$(now)
sleep 6
usual=$(($(ticks uvmd) - before)) usual_of=$(($(now) - begun))

# --- the attacks: above its usual processor time, uvmd takes at most a tenth of that of an attack, and the bursts of its user; the same for all attacks
# together, which are of one user
# Bursts of SECURITY.md, in hundredths of a second: for new processes, mapped managed memory, searches, recorded calls, followers and planners.
BURSTS=$((100 + 100 + 25 + 100 + 50 + 100))
own_sum=0 taken_sum=0
# attack KIND
attack() {
  : >/tmp/attack
  before=$(ticks uvmd) attack_before=$(ticks attack) shared_before=$(memory_kib shmem) begun=$(now)
  (within_cgroup attack lab-runner attack "$1" >/tmp/attack 2>&1) &
  attack=$!
  within 120 "the attack $1 does not begin" grep -q '^attack' /tmp/attack
  sleep "${LAB_ATTACK_SECONDS:-4}"
  uvmd_is_alive || fail "uvmd is dead after the attack $1"
  is_whole training $training
  is_whole chatty $chatty
  shared=$(($(memory_kib shmem) - shared_before))
  own=$(($(ticks uvmd) - before - usual * ($(now) - begun) / usual_of)) taken=$(($(ticks attack) - attack_before))
  # What uvmd says of the programs.
  for program in $(sed -n 's/^attack .* by process //p' /tmp/attack | head -n 2); do uvmctl policy explain "$program" | grep 'No auto-plan\|Plan'; done
  kill -9 "$attack"
  wait "$attack" 2>/dev/null
  has_ended() { [ ! -s $CGROUPS/attack/cgroup.procs ]; }
  within 60 "the attack $1 does not end" has_ended
  echo "attack $1: took $taken hundredths of a second, uvmd $own; uvmd's shared memory grew by $shared KiB"
  [ "$taken" -gt $((${LAB_ATTACK_SECONDS:-4} * 50)) ] || fail "the attack $1 took $taken hundredths of a second only"
  [ $((own * 10)) -le $((taken + BURSTS * 10)) ] || fail "uvmd took more than a tenth of what the attack $1 took, and the bursts of $BURSTS"
  [ "$shared" -le 1024 ] || fail "the attack $1 has $shared KiB of shared memory charged to uvmd"
  own_sum=$((own_sum + own)) taken_sum=$((taken_sum + taken))
}
for kind in ${LAB_ATTACKS:-claims graphs maps iterations extents holes}; do attack "$kind"; done
echo "all attacks: took $taken_sum hundredths of a second, uvmd $own_sum above its usual $usual in $usual_of"
[ $((own_sum * 10)) -le $((taken_sum + BURSTS * 10)) ] || fail "uvmd took more than a tenth of what the attacks took, and the bursts of $BURSTS"

# --- programs under filters of system calls end as without the helper
# fork, vfork, clone, wait4 and gettid: it may start threads, and no processes.
FILTERED_CALLS="57 58 56 61 186"
# is_right_under ACTION: of the filter
is_right_under() {
  # shellcheck disable=SC2086 # words
  launch filtered filtered "$1" $FILTERED_CALLS -- training 0 100
  has_begun() { has_iterated filtered 2 || ! kill -0 $launched 2>/dev/null; }
  within 60 "a program under the filter $1 does not begin" has_begun
  is_right filtered $launched
}
preload='' is_right_under kill
preload=/usr/lib/uvmd/libuvmd_helper.so
for action in errno trap kill; do is_right_under $action; done

# --- what is left of the honest user's
within 600 "the trial does not end" decided 'confirmed\|rolled_back\|ended\|denied'
decided confirmed || fail "the plan is not confirmed"
echo "the plan is confirmed at iteration $(grep -c '^iteration' /tmp/training)"
is_whole training $training
is_whole chatty $chatty
is_right training $training
is_right chatty $chatty

peak=$(cat $CGROUPS/uvmd/memory.peak) resident=$(sed -n 's/^VmHWM:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$uvmd/status")
echo "uvmd's memory: at most $((resident / 1024)) MiB, with its cgroup's $((peak >> 20)) MiB"
[ $((resident * 1024)) -le $MEMORY_MAX ] || fail "uvmd has taken too much memory"
[ "$peak" -le $MEMORY_MAX ] || fail "uvmd's cgroup has taken too much memory"
stop_uvmd
echo "ok"
