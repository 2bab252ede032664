#!/bin/sh
# uvmd --withdraw withdraws the advice of a killed uvmd
# guest: shared
# set: LAB_UVMD=no
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
# shellcheck source=lab/vm/link
. /lab/link
evidence="/tmp/told /tmp/target $UVMD_LOG /tmp/status"
STATE=/run/state
JOURNAL=$STATE/advice.journal
policy="--set policy.enabled=true --set policy.mode=act --set policy.policy=ping-pong --set policy.state_dir=$STATE"

expect_told() { grep -qF "$2" /tmp/told || fail "$1"; }

# Of a process that is older than its count, uvmd does not know what it was advised.
# shellcheck disable=SC2086 # words
start uvmd $policy
state_becomes counting
cat >/tmp/target.toml <<'SCENARIO'
name = "alternates"
[[process]]
name = "alternates"
alloc = [{ name = "a", mib = 8 }]
steps = [{ cpu_write = "a" }, { gpu_read = "a", access_rate = 32 }, { sleep_ms = 50 }]
SCENARIO
lab-runner loop /tmp/target.toml 2>/tmp/target >/dev/null &
runner=$!
has_begun() { pid=$(pidof alternates); }
within 30 "the target does not begin" has_begun
within 60 "uvmd gives no advice" grep -qs '"advice":"accessed_by"' $JOURNAL
within 20 "the advice has no effect" is_accessed
! uvmd --withdraw --set policy.state_dir=$STATE >/tmp/told 2>&1 || fail "it withdraws behind the back of a uvmd"
expect_told "why not" "is in use: another uvmd runs"
is_accessed || fail "nothing was to change"

kill -9 "$uvmd"
sleep 1
is_accessed || fail "the driver keeps the advice of a uvmd that is killed"
echo 'no = "TOML' >/tmp/uvmd.toml
uvmd --withdraw --config /tmp/uvmd.toml --set policy.state_dir=$STATE >/tmp/told 2>&1 || fail "it is no success"
cat /tmp/told
expect_told "what became of the process" "process $pid (alternates): withdrawn: "
expect_told "that nothing is left" "no advice of uvmd is in effect any more"
within 10 "the advice is still in force" is_copied
! grep -q '"advice"' $JOURNAL || fail "the journal has it still"

# Once more there is nothing to do, and the next uvmd finds nothing.
uvmd --withdraw --set policy.state_dir=$STATE >/tmp/told 2>&1 || fail "it is no success the second time"
[ "$(wc -l </tmp/told)" = 1 ] || fail "there was nothing to do"
# shellcheck disable=SC2086 # words
start uvmd $policy --set policy.mode=observe
state_becomes counting
! grep -q 'advice of a former run is in effect' $UVMD_LOG || fail "the next uvmd finds advice"
stop_uvmd
kill -TERM $runner
wait $runner || fail "the target's data is not right"
echo "ok"
