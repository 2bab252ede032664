#!/bin/sh
# addresses require permission; counts of an owner outlive its processes
# guest: shared
# set: LAB_UVMD=no
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence="/tmp/loop $UVMD_LOG /tmp/answer /tmp/metrics"
TCP=http://127.0.0.1:9477
asks() { uvmctl "$@" >/tmp/answer 2>&1; }
scrape() { wget -qO /tmp/metrics $TCP/metrics; }
# sum METRIC: over its series
sum() { awk -v metric="$1" 'index($1, metric "{") == 1 { sum += $NF } END { printf "%d\n", sum }' /tmp/metrics; }
# Sums of evictions as the API has them.
evicted() { wget -qO- $TCP/api/v1/evictions | grep -o '"bytes": *[0-9]*' | awk -F: '{ sum += $2 } END { printf "%d\n", sum }'; }
rounds() { [ "$(grep -c '^round' /tmp/loop)" -ge "$1" ]; }

cat >/tmp/work.toml <<'SCENARIO'
name = "work"
[[process]]
name = "too-much"
alloc = [{ name = "a", mib = 96 }]
steps = [{ gpu_write = "a" }, { gpu_read = "a" }]
SCENARIO
umask 077
echo 0123456789abcdef >/tmp/token
start uvmd --ended-retention 1s --set auth.token_file=/tmp/token
state_becomes counting
lab-runner loop /tmp/work.toml >/tmp/loop 2>&1 &
runner=$!
within 60 "the work does not begin" rounds 3
pid=$(uvmctl ps -o json | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' | sed -n 1p)

asks --socket /run/uvmd/uvmd.sock heatmap "$pid" || fail "root is not told on the socket"
asks --url $TCP --token-file /tmp/token heatmap "$pid" || fail "who knows the token is not told"
! asks --url $TCP heatmap "$pid" || fail "everybody is told"
echo fedcba9876543210 >/tmp/wrong
! asks --url $TCP --token-file /tmp/wrong status || fail "a wrong token is taken"

kill -TERM $runner
wait $runner || fail "the work did not end well"
scrape || fail "no metrics"
for metric in uvm_refetched_bytes_total uvm_owner_refetched_bytes_total uvm_owner_gpu_faults_total uvm_migration_size_bytes_count; do
  [ "$(sum $metric)" -gt 0 ] || fail "$metric is not there"
done
bytes=$(sum uvm_owner_pair_evicted_bytes_total)
[ "$bytes" -gt 0 ] || fail "nothing was evicted"
[ "$bytes" = "$(evicted)" ] || fail "by owner $bytes bytes were evicted, by process $(evicted)"
[ "$bytes" = "$(awk '/^uvm_migrated_bytes_total.*cause="eviction"/ { sum += $NF } END { printf "%d\n", sum }' /tmp/metrics)" ] || fail "$bytes bytes are not all"

is_forgotten() { uvmctl ps --all -o json >/tmp/answer && ! grep -q too-much /tmp/answer; }
within 20 "the process is not forgotten" is_forgotten
faults=$(sum uvm_owner_gpu_faults_total) refetched=$(sum uvm_refetched_bytes_total)
scrape || fail "no metrics"
[ "$(sum uvm_owner_pair_evicted_bytes_total)" = "$bytes" ] || fail "evictions by owner went from $bytes to $(sum uvm_owner_pair_evicted_bytes_total)"
[ "$(sum uvm_owner_gpu_faults_total)" = "$faults" ] || fail "faults by owner went from $faults to $(sum uvm_owner_gpu_faults_total)"
[ "$(sum uvm_refetched_bytes_total)" = "$refetched" ] || fail "what was fetched again went back"
grep '^uvmd_auth_failures_total\|^process_cpu\|^process_resident' /tmp/metrics
stop_uvmd
[ ! -e /run/uvmd/uvmd.sock ] || fail "the socket is left"
echo "ok: $bytes bytes evicted, $refetched fetched again, $faults faults"
