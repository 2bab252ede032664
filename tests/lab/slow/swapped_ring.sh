#!/bin/sh
# a ring that its user swaps out, in a cgroup without room, hangs no thread of uvmd
# set: LAB_UVMD=no
# set: LAB_SWGPU_PARAMETERS=gpus=2
# gpu_mem_mib: 32
# timeout: 600
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence="/tmp/early /tmp/late /tmp/honest /tmp/second /tmp/ops $UVMD_LOG"
CGROUPS=/sys/fs/cgroup

# --- swap, and two cgroups that belong to a user
insmod /lib/modules/brd.ko rd_nr=1 rd_size=65536 || fail "there is no block device"
mkswap /dev/ram0 >/dev/null || fail "there is no swap"
swapon /dev/ram0 || fail "the swap is not used"
echo +memory >$CGROUPS/cgroup.subtree_control || fail "there is no cgroup of memory"
mkdir $CGROUPS/uvmd $CGROUPS/user
echo +memory >$CGROUPS/user/cgroup.subtree_control
mkdir $CGROUPS/user/early $CGROUPS/user/late $CGROUPS/user/other
chmod 666 /dev/nvidia-uvm /dev/swgpu
# launch NAME UID: a training with the helper, as $launched
launch() {
  echo "$1:x:$2:$2::/tmp:/bin/sh" >>/etc/passwd
  : >"/tmp/$1"
  cgroup=$CGROUPS/user/$1
  [ -d "$cgroup" ] || cgroup=$CGROUPS/user/other
  (
    exec sh -c 'echo $$ >"$1/cgroup.procs" && shift && exec su -s /bin/sh -c '\''exec "$@"'\'' -- "$@"' sh "$cgroup" "$1" sh \
      env LD_LIBRARY_PATH=/lab/cuda LD_PRELOAD=/usr/lib/uvmd/libuvmd_helper.so UVMD_HELPER=record training 20 1000 >"/tmp/$1" 2>&1
  ) &
  launched=$!
  within 120 "the program $1 does not begin" has_iterated "$1" 2
}
has_iterated() { [ "$(grep -c '^iteration' "/tmp/$1")" -ge "$2" ]; }
# swap_out NAME PID: its memory leaves for swap, and cannot return
swap_out() {
  echo "$2" >$CGROUPS/user/other/cgroup.procs
  echo 64M >$CGROUPS/user/"$1"/memory.reclaim 2>/dev/null
  echo "swapped out of $1: $(cat $CGROUPS/user/"$1"/memory.swap.current) bytes"
  [ "$(cat $CGROUPS/user/"$1"/memory.swap.current)" -gt 0 ] || fail "nothing of $1 was swapped out"
  echo 0 >$CGROUPS/user/"$1"/memory.max
}
ops_say() { uvmctl ops "$1" --last 1 -o json >/tmp/ops 2>&1 && grep -q "$2" /tmp/ops; }

# --- before uvmd finds it: the ring is refused
launch early 1001
early=$launched
swap_out early $early
start sh -c "echo \$\$ >$CGROUPS/uvmd/cgroup.procs && exec uvmd --set policy.enabled=true --set policy.mode=act --set policy.policy=auto-plan --set policy.state_dir=/run/state"
state_becomes counting
within 60 "the ring that is swapped out is not refused" ops_say $early 'cannot be locked'

# --- while uvmd reads it: a page is replaced by one that is swapped out, again and again
launch honest 1003
honest=$launched
within 60 "the honest program is not recorded" ops_say $honest '"state": *"recording"'
user=1002
chown $user $CGROUPS/user $CGROUPS/user/cgroup.procs
for cgroup in late other; do chown -R $user $CGROUPS/user/$cgroup; done
(exec sh -c "echo \$\$ >$CGROUPS/user/other/cgroup.procs && exec lab-runner attack swapped --uid $user" >/tmp/late 2>&1) &
late=$!
within 60 "the attack does not begin" grep -q '^attack swapped by' /tmp/late
ticks() { sed 's/.*) //' "/proc/$uvmd/stat" | awk '{ print $12 + $13 }'; }
before=$(ticks)
sleep 20
took=$(($(ticks) - before))
echo "uvmd took $took hundredths of a second in 20 s; swapped out: $(cat $CGROUPS/user/late/memory.swap.current) bytes"
! grep -q failed /tmp/late || fail "the attack fails"
[ $took -le 1000 ] || fail "uvmd computes without end"

# --- others are recorded: the one that is there, and one that begins now
launch second 1004
within 60 "a program that begins now is not recorded" ops_say $launched '"state": *"recording"'
iterations=$(grep -c '^iteration' /tmp/honest)
within 60 "the honest program does not go on" has_iterated honest $((iterations + 2))
ops_say $honest '"state": *"recording"' || fail "the honest program is not recorded"
kill -9 $early $late $honest $launched
stop_uvmd
echo "ok"
