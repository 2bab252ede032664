#!/bin/sh
# SIGHUP reloads, a taken port leaves the socket, old advice is withdrawn first
# guest: shared
# set: LAB_UVMD=no
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence="/tmp/loop /tmp/answer $UVMD_LOG"
STATE=/var/lib/uvmd
CONFIG=/tmp/uvmd.toml
asks() { uvmctl "$@" >/tmp/answer 2>&1; }
says() { grep -q "$1" $UVMD_LOG; }
journal() { cat $STATE/advice.journal 2>/dev/null | grep -c '"advice"' || true; }
# configure TEXT: what the file says, beside that uvmd may act.
configure() { printf '[policy]\nenabled = true\noverrides_file = "/tmp/overrides.toml"\n%s\n' "$1" >$CONFIG; }
# Advice of the last decisions is in force.
is_advised() { asks decisions -o json && grep -q '"stage": *"\(trial\|confirmed\)"' /tmp/answer && [ "$(journal)" -gt 0 ]; }
audited() { grep -c "\"type\":\"$1\"" $STATE/audit.jsonl; }

cat >/tmp/work.toml <<'SCENARIO'
name = "work"
[[process]]
name = "pingpong"
alloc = [{ name = "a", mib = 12 }]
steps = [{ gpu_write = "a" }, { cpu_write = "a" }]
SCENARIO
configure ''
start uvmd --config $CONFIG
state_becomes counting
lab-runner loop /tmp/work.toml >/tmp/loop 2>&1 &
runner=$!

# --- by SIGHUP alone uvmd begins to act
[ "$(journal)" = 0 ] || fail "there is advice, and nobody wants any"
configure 'mode = "act"
policy = "ping-pong"'
kill -HUP "$uvmd"
within 10 "it is not reloaded" says 'reloaded .*policy.mode'
within 60 "nothing is advised" is_advised
[ "$(audited configuration_reload)" = 1 ] || fail "the reload is not in the audit log"

# --- a file that is not in order changes nothing, and what is in force stays
configure 'mode = "loud"'
kill -HUP "$uvmd"
within 10 "the mistake is not named" says 'not reloaded'
state_is counting || fail "it does not count any more"

# --- killed: the next withdraws the advice, though somebody has its port
# Advice of the first trial may have been withdrawn by now, as in a slow guest.
withdrawn() { grep -c '"is_withdrawn":true' $STATE/advice.journal || true; }
is_in_force() { is_advised && [ "$(journal)" -gt $(($(withdrawn) * 2)) ]; }
within 120 "no advice is in force" is_in_force
kill -9 "$uvmd"
wait "$uvmd"
[ "$(journal)" -gt 0 ] || fail "there was no advice to be withdrawn"
nc -l -p 9477 >/dev/null 2>&1 &
thief=$!
port_is_taken() { cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | grep -q ':2505 .* 0A '; }
within 10 "the port is not taken" port_is_taken
: >$UVMD_LOG
configure ''
# Whoever asked before there is a socket would come to that port.
uvmd --config $CONFIG >>$UVMD_LOG 2>&1 &
uvmd=$!
within 60 "the socket is not served" says 'serves on /run/uvmd/uvmd.sock'
says 'advice of the former run is withdrawn' || fail "the advice is not withdrawn"
[ "$(grep -n 'advice of the former run is withdrawn' $UVMD_LOG | cut -d: -f1)" -lt "$(grep -n 'serves on' $UVMD_LOG | head -n 1 | cut -d: -f1)" ] || fail "it was served before that"
is_told() { asks status && grep -q "address already in use" /tmp/answer; }
is_told || fail "the status does not say that the port is taken"
kill $thief
within 100 "the port is not had once it is free" says 'serves on http'

# --- SIGQUIT stops as SIGTERM does
kill -TERM $runner
wait $runner || fail "the work did not end well"
kill -QUIT "$uvmd"
wait "$uvmd" || fail "uvmd did not stop cleanly"
! grep -q panicked $UVMD_LOG || fail "a panic"
[ "$(wc -l </sys/kernel/debug/kprobes/list)" = 0 ] || fail "probes are left"
echo "ok: reloaded, killed, withdrawn and served"
