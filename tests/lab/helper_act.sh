#!/bin/sh
# the helper does what ioctls do: bytes, advice, decisions; it acts where descriptors are refused
# set: LAB_UVMD=no
# timeout: 1800
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
# shellcheck source=lab/vm/link
. /lab/link
evidence="/tmp/report /tmp/program /tmp/decisions /tmp/ioctl /tmp/helper $UVMD_LOG"
MIB=$((1 << 20))
STATE=/run/state
JOURNAL=$STATE/advice.journal

# launch INPUT OPTION...: a workload with the helper in it, as $program.
launch() {
  input=$1
  shift
  LD_LIBRARY_PATH=/lab/cuda uvmctl run -- uvm-workload --force "$@" <"$input" >/tmp/program 2>&1 &
  program=$!
}
is_over() { [ "$(cat /sys/module/nvidia_uvm/refcnt)" = 0 ]; }

# --- the same orders, one after the other, while the program is at rest between its phases
mkfifo /tmp/stdin
# next_phase: until it is at rest again.
next_phase() {
  phases=$((phases + 1))
  printf '\n\n' >&5
  within 120 "phase $phases does not end" has_phases
}
has_phases() { [ "$(grep -c '"event":"done"' /tmp/program)" -ge $phases ]; }
has_begun() { grep -q '"event":"begun"' /tmp/program; }
# order ACTION FROM_MIB TO_MIB: by $choice; the report of act is in /tmp/report and /tmp/$choice.
order() {
  act --actuator "$choice" --reserve-mib 16 "$1 $program $(at "$2") $(at "$3")" >/tmp/report 2>&1 || fail "act $1 by $choice"
  cat /tmp/report >>"/tmp/$choice"
}
at() { printf '0x%x' $((address + $1 * MIB)); }
# What uvmd counted of the program: bytes of migrations on request, by direction.
requested() {
  uvmctl ps --all -o json | tr -d ' \n' | sed 's/"pid":/\n"pid":/g' | grep "^\"pid\":$program," >/tmp/one
  causes=$(grep -o '"bytes_by_cause":{"dtod":{[^}]*},"dtoh":{[^}]*},"htod":{[^}]*}}' /tmp/one) || fail "no bytes by cause"
  for direction in dtoh htod; do
    echo "$causes" | grep -o "\"$direction\":{[^}]*}" | grep -o "\"$1\":[0-9]*" | sed "s/\"$1\"/$direction/"
  done
}
# compare CHOICE CAUSE: all orders by one choice; migrations are counted under this cause.
compare() {
  choice=$1 phases=0
  : >"/tmp/$choice"
  launch /tmp/stdin --mib 16 --iterations 3 --hold ping-pong
  exec 5>/tmp/stdin
  within 120 "the program does not begin" has_begun
  address=$(sed -n 's/.*"event":"begun".*"address":\([0-9]*\).*/\1/p' /tmp/program)
  next_phase # the CPU writes
  # The first order by the helper is denied at once; its thread starts at the next call of the program.
  act --actuator "$choice" --reserve-mib 16 "migrate_to_host $program $(at 0) $(at 16)" >/tmp/report 2>&1 || fail "the first order by $choice"
  [ "$choice" = ioctl ] || grep -q '"denied":.*its helper has not started its thread' /tmp/report || fail "it is not said why nothing is done yet"
  next_phase # the GPU increments
  next_phase # the CPU increments
  before=$(link copied_htod_bytes)/$(link copied_dtoh_bytes)
  order migrate_to_gpu 0 16
  order touch 0 16
  order migrate_to_host 3 7
  order migrate_to_gpu 0 16
  order migrate_to_host 0 16
  grep -q '"action":"migrate_to_host".*"calls":{"done":8}' /tmp/report || fail "8 blocks to the host by $choice"
  grep -q "\"made_by\":\"$choice\"" /tmp/report || fail "it was not $choice that acted"
  order accessed_by 0 16
  order prefer_host 0 16
  then=$(link remote_htod_bytes)/$(link copied_htod_bytes)
  next_phase # the GPU increments, where the memory is
  echo "in force: remote and copied from $then to $(link remote_htod_bytes)/$(link copied_htod_bytes)" >/tmp/in_force
  [ "$(link copied_htod_bytes)" = "${then#*/}" ] || fail "advice by $choice is not in force: $(cat /tmp/in_force)"
  echo "remote $(($(link remote_htod_bytes) - ${then%/*}))" >>"/tmp/$choice"
  order unset_accessed_by 0 16
  order unset_preferred_location 0 16
  next_phase # the CPU increments
  next_phase # the GPU increments
  echo "copied $(($(link copied_htod_bytes) - ${before%/*})) $(($(link copied_dtoh_bytes) - ${before#*/}))" >>"/tmp/$choice"
  requested "$2" >>"/tmp/$choice"
  # The rest of its phases, without a pause.
  printf '%64s' '' | tr ' ' '\n' >&5
  wait "$program" || fail "the data of the program is not right after orders by $choice"
  exec 5>&-
  within 20 "somebody holds the VA space of a program that has ended" is_over
  sed -i 's/"made_by":"[a-z]*",//; s/"longest_ns":[0-9]*,//' "/tmp/$choice"
}
start uvmd
state_becomes counting
compare ioctl tool
compare helper api
cmp /tmp/ioctl /tmp/helper || fail "orders by the helper do something else"
cat /tmp/helper
stop_uvmd
echo "orders: the same bytes, results and advice by either actuator"

# --- live policies: by ioctl, by the helper, and of itself where there are no descriptors
policy="--set policy.enabled=true --set policy.mode=act --set policy.policy=ping-pong --set policy.state_dir=$STATE"
decides() { uvmctl decisions -o json 2>/dev/null | tr -d ' \n' >/tmp/decisions && grep -q "\"actuator\":\"$1\"" /tmp/decisions; }
# act_live CHOICE ACTUATOR: uvmd acts so; it is killed, and its advice withdrawn.
act_live() {
  rm -f $JOURNAL
  # Of a process that is older than its count, uvmd does not know what it was advised.
  # shellcheck disable=SC2086 # words
  start uvmd $policy --set "policy.actuator=$1"
  state_becomes counting
  launch /dev/null --mib 4 --iterations 100000 ping-pong
  within 180 "uvmd gives no advice with $1" grep -qs '"advice":"accessed_by"' $JOURNAL
  within 60 "no decision has the actuator $2 with $1" decides "$2"
  within 60 "the advice has no effect with $1" is_accessed
  kill -9 "$uvmd"
  wait "$uvmd" 2>/dev/null
  is_accessed || fail "the driver keeps the advice of a uvmd that is killed"
  uvmd --withdraw --set policy.state_dir=$STATE >/tmp/report 2>&1 || fail "the advice is not withdrawn with $1"
  cat /tmp/report
  grep -qF "no advice of uvmd is in effect any more" /tmp/report || fail "something is left with $1"
  within 60 "the advice is still in force with $1" is_copied
  ! grep -q '"advice"' $JOURNAL || fail "the journal has it still with $1"
  kill "$program"
  wait "$program" 2>/dev/null
  within 20 "somebody holds the VA space of a program that has ended" is_over
  echo "policy.actuator=$1: $2 acts, and what a killed uvmd advised is withdrawn"
}
act_live ioctl ioctl
act_live helper helper
act_live auto ioctl
# For good: the kernel gives out no descriptors, whatever capabilities there are.
echo 3 >/proc/sys/kernel/yama/ptrace_scope || fail "this kernel has no Yama"
act_live auto helper
! grep -q panicked $UVMD_LOG || fail "a panic"
echo "ok"
