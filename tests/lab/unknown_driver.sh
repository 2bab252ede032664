#!/bin/sh
# an unknown driver version is refused by name, and nothing is attached
# set: LAB_CLAIM_VERSION=999.12.03
set -u
fail() { echo "FAILED: $*"; exit 1; }

i=0
until uvmctl status --json >/tmp/status 2>/dev/null; do i=$((i + 1)); [ $i -lt 100 ] || fail "uvmd does not answer"; sleep 0.2; done
sleep 2
uvmctl status --json >/tmp/status || fail "uvmctl status"
cat /tmp/status
grep -q '"state": *"refused"' /tmp/status || fail "the state is not refused"
grep -q '999\.12\.03' /tmp/status || fail "the reason does not name the version"
wget -S -O /dev/null http://127.0.0.1:9477/readyz 2>&1 | grep -q ' 503 ' || fail "readyz is not 503"
wget -q -O /dev/null http://127.0.0.1:9477/livez || fail "livez"
[ "$(wc -l </sys/kernel/debug/kprobes/list)" = 0 ] || fail "probes are attached"
echo "ok"
