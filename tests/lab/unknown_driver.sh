#!/bin/sh
# an unknown driver version is refused by name, without probes
# set: LAB_CLAIM_VERSION=999.12.03
set -u
# shellcheck source=lab/vm/expect
. /lab/expect

state_becomes refused
cat /tmp/status
grep -q '999\.12\.03' /tmp/status || fail "the reason does not name the version"
wget -S -O /dev/null http://127.0.0.1:9477/readyz 2>&1 | grep -q ' 503 ' || fail "readyz is not 503"
wget -q -O /dev/null http://127.0.0.1:9477/livez || fail "livez"
[ "$(wc -l </sys/kernel/debug/kprobes/list)" = 0 ] || fail "probes are attached"
echo "ok"
