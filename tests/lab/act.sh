#!/bin/sh
# calls from outside: moves, advice, an exiting target, a full cgroup, a killed actor
# LAB_CALLS: how many calls of a target are looked at for fairness
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
# shellcheck source=lab/vm/link
. /lab/link
evidence='/tmp/told /tmp/target'
OFF=/run/act.off
JOURNAL=/run/act.journal
BASE=20000000000 # of the targets' first allocation
MIB=$((1 << 20))

# at MIB: an address in it.
at() { printf '0x%x' $((0x$BASE + $1 * MIB)); }
# act_out COMMAND...: what act says of it is in /tmp/told.
act_out() { act --reserve-mib "${reserve_mib:-64}" "$@" >/tmp/told 2>&1 || fail "act $*"; }
# expect_told WHAT PATTERN: in what act said last.
expect_told() { grep -qE "$2" /tmp/told || fail "$1"; }
# What went over the link during the last order, to the GPU and to the host.
moved() { sed -n 's/.*"link_bytes":\[\([0-9]*\),\([0-9]*\)\].*/\1 \2/p' /tmp/told | tail -n 1; }
expect_moved() { [ "$(moved)" = "$2 $3" ] || fail "$1: it moved $(moved) bytes to the GPU and the host, and not $2 $3"; }

# target NAME MIB STEPS: a process with so much memory, which does the steps again and again, as $pid; it is at rest once its steps sleep.
target() {
  cat >/tmp/target.toml <<SCENARIO
name = "$1"
[[process]]
name = "$1"
alloc = [{ name = "a", mib = $2 }]
steps = [$3]
SCENARIO
  lab-runner loop /tmp/target.toml 2>/tmp/target >/dev/null &
  runner=$!
  has_begun() { pid=$(pidof "$1"); }
  within 30 "the target does not begin" has_begun "$1"
}
asleep() { grep -q 'State:.*S (sleeping)' "/proc/$pid/status" && [ "$(link copied_htod_bytes)$(link copied_dtoh_bytes)" = "${before:-}" ]; }
at_rest() { before=$(link copied_htod_bytes)$(link copied_dtoh_bytes); sleep 0.5; asleep; }
rests() { within 60 "the target does not come to rest" at_rest; }
# Its data is right after all that was done to it.
target_is_right() {
  kill -TERM $runner
  wait $runner || fail "the target's data is not right"
}

state_becomes counting

# --- moves
target moved 16 '{ cpu_write = "a" }, { sleep_ms = 600000 }'
rests
act_out "migrate_to_gpu $pid $(at 0) $(at 16)" "migrate_to_gpu $pid $(at 0) $(at 16)"
expect_told "eight blocks to the GPU" '"calls":\{"done":8\}'
expect_moved "what is there already" 0 0
act_out "migrate_to_host $pid $(at 3) $(at 7)"
expect_told "parts end at block boundaries" '"calls":\{"done":3\}'
expect_moved "a part to the host" 0 $((4 * MIB))
act_out "migrate_to_gpu $pid $(at 0) $(at 24)"
expect_told "what is not mapped is left alone" '"calls":\{"done":8,"not_mapped":1\}'
expect_moved "a part to the GPU" $((4 * MIB)) 0
touch $OFF
act_out "migrate_to_host $pid $(at 0) $(at 16)"
expect_told "the switch" '"calls":\{"cancelled":1\}'
rm $OFF
echo "moves: as asked for, in blocks"
target_is_right

# --- renewal: the card has 64 MiB, of which the driver takes some
# fill: 60 MiB of it to the GPU, from the first block on.
fill() { act_out "migrate_to_host $pid $(at 0) $(at 120)" "migrate_to_gpu $pid $(at 0) $(at 60)"; }
# What brings the first block back if it was evicted: its page, or nothing.
first_is_there() { act_out "touch $pid $(at 0) $(at 2)" && [ "$(moved)" = "0 0" ]; }
target renewed 120 '{ cpu_write = "a" }, { sleep_ms = 600000 }'
rests
fill
act_out "migrate_to_gpu $pid $(at 60) $(at 80)"
! first_is_there || fail "without renewal the first block had to be evicted first"
fill
act_out "touch $pid $(at 0) $(at 10)"
expect_told "five blocks are renewed" '"calls":\{"done":5\}'
expect_moved "renewal" 0 0
act_out "migrate_to_gpu $pid $(at 60) $(at 80)"
[ "$(moved | cut -d ' ' -f 2)" -ge $((16 * MIB)) ] || fail "20 MiB more had to evict others"
act_out "touch $pid $(at 0) $(at 10)"
expect_moved "the renewed blocks were to stay" 0 0
act_out "touch $pid $(at 10) $(at 12)"
[ "$(moved)" != "0 0" ] || fail "a block that was not renewed was to go instead"
echo "renewal: no byte copied, and the renewed stay where others go"
target_is_right

# --- advice: what the processor writes and the GPU reads, again and again
target advised 4 '{ cpu_write = "a" }, { gpu_read = "a", access_rate = 128 }, { sleep_ms = 50 }'
for advice in accessed_by/unset_accessed_by prefer_host/unset_preferred_location; do
  within 10 "without advice the memory is to move" is_copied
  act_out "${advice%/*} $pid $(at 0) $(at 4)"
  expect_told "advice is given in one call" '"calls":\{"done":1\}'
  within 10 "with ${advice%/*} the memory is to stay and be accessed" is_accessed
  act_out "${advice#*/} $pid $(at 0) $(at 4)"
  # Of this one the driver leaves the mappings that there are; they go when the memory moves.
  [ "$advice" != accessed_by/unset_accessed_by ] || act_out "migrate_to_gpu $pid $(at 0) $(at 4)"
done
within 10 "with no advice left the memory is to move again" is_copied
echo "advice: the GPU accesses what it would have fetched, until it is withdrawn"

# --- a journal: the actor is killed, and the next one withdraws
: >/tmp/told
act --journal $JOURNAL "accessed_by $pid $(at 0) $(at 4)" "sleep 600" >/tmp/told 2>&1 &
actor=$!
within 10 "the advice is not given" grep -q '"calls":{"done":1}' /tmp/told
within 10 "the advice has no effect" is_accessed
kill -9 $actor
sleep 1
is_accessed || fail "the driver keeps the advice of an actor that is killed"
act_out --journal $JOURNAL undo "migrate_to_gpu $pid $(at 0) $(at 4)"
expect_told "one leftover is found" '"leftovers": 1'
expect_told "and withdrawn" '"action":"unset_accessed_by","calls":\{"done":1\}'
within 10 "the advice is still in force" is_copied
act_out --journal $JOURNAL undo
expect_told "nothing is left then" '"leftovers": 0'
echo "journal: what a killed actor advised is withdrawn by the next"
target_is_right

target duplicated 4 '{ gpu_read = "a" }, { cpu_read = "a" }, { sleep_ms = 50 }'
within 10 "without advice the memory is to move" is_copied
act_out "read_duplication $pid $(at 0) $(at 4)"
is_still() { ! is_copied; }
within 10 "what is in both places is not to be copied again" is_still
act_out "disable_read_duplication $pid $(at 0) $(at 4)"
within 10 "with no advice left the memory is to move again" is_copied
target_is_right
echo "read duplication: nothing is copied twice, until it is withdrawn"

# --- a process in a cgroup that is full
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
full=/sys/fs/cgroup/full
mkdir $full
echo $$ >$full/cgroup.procs
target limited 32 '{ gpu_write = "a" }, { sleep_ms = 600000 }'
echo $$ >/sys/fs/cgroup/cgroup.procs
rests
echo $(($(cat $full/memory.current) + 10 * MIB)) >$full/memory.max
reserve_mib=2
act_out "migrate_to_host $pid $(at 0) $(at 32)"
reserve_mib=64
expect_told "some fits" '"done":[1-9]'
expect_told "and the rest is refused for want of memory" '"host_memory":[1-9]'
expect_told "and nothing else" '"reason":null'
cat $full/memory.events >>/tmp/told
grep -qx 'oom_kill 0' $full/memory.events || fail "the target was killed"
kill -0 "$pid" || fail "the target is gone"
echo max >$full/memory.max
echo "full cgroup: refused, and nobody killed"
target_is_right

# --- descriptors that stand for nothing
sleep 600 3</dev/nvidia-uvm &
other=$!
for pid in 1 $other; do
  act_out "migrate_to_gpu $pid $(at 0) $(at 4)"
  expect_told "a process without a VA space has nothing mapped" '"calls":\{"not_mapped":1\}'
done
kill $other

# --- a target that unmaps meanwhile
# churn CALLS OPTION...: a process that maps and unmaps until /tmp/end exists, as $pid; it holds memory at $held.
churn() {
  rm -f /tmp/target /tmp/release /tmp/end # or what the last one said would be read
  lab-runner churn --log /tmp/churn.log --until /tmp/end --calls "$@" >/tmp/target 2>&1 &
  pid=$!
  within 30 "the target does not begin" grep -q held /tmp/target
  held=$(sed -n 's/^held //p' /tmp/target)
}
# shuttles COMMAND...: the held memory is moved again and again, as $actor, which executes these commands behind that.
shuttles() {
  : >/tmp/told
  act --reserve-mib 64 "shuttle $pid $held" "$@" >/tmp/told 2>&1 &
  actor=$!
  has_moved() { [ "$(grep -c '"done"' /tmp/told)" -ge 20 ]; }
  within 60 "it does not move" has_moved
}
churn 400 --release-when /tmp/release
shuttles
touch /tmp/release
wait $actor || fail "the actor failed"
expect_told "it ends where nothing is mapped any more" '"not_mapped":[1-9]'
! grep -q '"failed"' /tmp/told || fail "an answer that is not clean"
touch /tmp/end
wait "$pid" || fail "the target minds"
echo "unmapped meanwhile: said so, and nothing else"

# --- fairness to the target: between two of our calls it gets its turn
churn "${LAB_CALLS:-2000}"
# Its other memory comes and goes at the same address: it is there or not, and each time another.
reused='migrate_to_gpu '"$pid"' 0x30000000000 0x30000200000'
act_out "$reused" "$reused" "$reused" "$reused" "$reused" "$reused" "$reused" "$reused"
grep -qE '"(done|not_mapped)"' /tmp/told || fail "no answer"
! grep -qE '"(failed|exited)"' /tmp/told || fail "an answer that is not clean"
shuttles "overlaps /tmp/churn.log"
touch /tmp/end
wait "$pid" || fail "the target's data is not right"
# The shuttle ends with the target, which has left its log.
wait $actor || fail "the actor failed"
expect_told "no call of the target overlaps more than two of ours" '"most_overlaps":[12],'
echo "fairness: $(tail -n 1 /tmp/told)"

# --- a target that ends meanwhile
target killed 32 '{ cpu_write = "a" }, { sleep_ms = 600000 }'
rests
: >/tmp/told
act "shuttle $pid $(at 0) $(at 32)" "sleep 600" >/tmp/told 2>&1 &
actor=$!
within 20 "it does not move" grep -q '"done"' /tmp/told
kill -9 "$pid"
# While it ends it is there for a moment and has no memory any more.
within 20 "its end is not seen" grep -qE '"(exited|not_mapped)":[1-9]' /tmp/told
! grep -q '"failed"' /tmp/told || fail "an answer that is not clean"
wait $runner
# The actor lives, and holds nothing of it.
is_let_go() { [ "$(cat /sys/module/nvidia_uvm/refcnt)" = 0 ]; }
within 20 "somebody holds the VA space of a process that has ended" is_let_go
kill -0 $actor || fail "the actor is gone"
kill $actor
echo "ended meanwhile: said so, and nothing of it held"
