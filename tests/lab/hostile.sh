#!/bin/sh
# a hostile user is named, at no cost to others and little to uvmd
# set: LAB_UVMD=no
# clock: instructions
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence="/tmp/attack /tmp/answer /tmp/loop /tmp/status $UVMD_LOG"
TCP=http://127.0.0.1:9477
get() { wget -qO /tmp/answer "$TCP$1"; }
# ticks PID: of a processor that it and its children that have ended took so far, in hundredths of a second
ticks() { sed 's/.*) //' "/proc/$1/stat" | awk '{ print $12 + $13 + $14 + $15 }'; }
degraded() { answers && grep -q "\"reason\": *\"$1\"" /tmp/status; }
is_listed() { uvmctl ps -o json >/tmp/answer 2>/dev/null && grep -q "\"name\": *\"$1\"" /tmp/answer; }
said() { grep -q '^attack' /tmp/attack; }

# begin KIND: an attack, as $attack
begin() {
  # What the attack before has said.
  : >/tmp/attack
  lab-runner attack "$1" >/tmp/attack 2>&1 &
  attack=$!
  within 120 "the attack $1 does not begin" said
}
end() {
  kill -9 "$attack"
  wait "$attack" 2>/dev/null
}
# a process that others need to see
cat >/tmp/work.toml <<'SCENARIO'
name = "work"
[[process]]
name = "honest"
alloc = [{ name = "a", mib = 16 }]
steps = [{ gpu_write = "a" }, { gpu_read = "a" }]
SCENARIO
work() {
  lab-runner loop /tmp/work.toml >/tmp/loop 2>&1 &
  runner=$!
  within 60 "whoever comes during the attack $1 is not listed" is_listed honest
  kill -TERM $runner
  wait $runner || fail "the work beside the attack $1 did not end well"
}

chmod 666 /dev/nvidia-uvm
start uvmd --ended-retention 1s
state_becomes counting
get /readyz || fail "it is not ready"
[ "$(cat /tmp/answer)" = ok ] || fail "it is degraded before anything happened"
# What it takes when nothing happens, in five seconds.
before=$(ticks "$uvmd")
sleep 5
idle=$(($(ticks "$uvmd") - before))

# cost KIND: uvmd takes at most a tenth of what the attacker takes, beside what it takes anyway. By the host's clock, work of the host beside the
# guest would slow the attacker, and not uvmd, which goes at its own pace.
cost() {
  before=$(ticks "$uvmd") taken=$(ticks "$attack")
  sleep 5
  taken=$(($(ticks "$attack") - taken)) own=$(($(ticks "$uvmd") - before - idle))
  echo "attack $1: took $taken hundredths of a second, uvmd $own beside $idle"
  [ "$taken" -gt 200 ] || fail "the attack $1 took $taken hundredths of a second only"
  [ $((own * 10)) -le "$taken" ] || fail "uvmd took $own hundredths of a second for the $taken of the attack $1"
}

# hold KIND: while what the attack made is there, and no more is made, uvmd takes at most a tenth of a processor more than without it
hold() {
  before=$(ticks "$uvmd")
  sleep 5
  own=$(($(ticks "$uvmd") - before))
  echo "attack $1: while it holds what it has, uvmd took $own hundredths of a second in five seconds, beside $idle without it"
  [ $((own - idle)) -le 50 ] || fail "uvmd took $own hundredths of a second while the attack $1 holds what it has"
}

begin churn
within 30 "who opens the driver in a loop is not named" degraded registration_rate
grep -q "process $attack of " /tmp/status || fail "another one is named"
work churn
cost churn
get /metrics || fail "no metrics"
grep -qx 'uvmd_degraded{.*reason="registration_rate"} 1' /tmp/answer || fail "no metric tells of the attack churn"
! grep '^uvmd_events_dropped_total' /tmp/answer | grep -v ' 0$' || fail "events were dropped for the attack churn"
end

begin processes
work processes
within 60 "who starts processes without end is not named" degraded registration_rate
# From when its user has used up what it may cost at once.
is_over() { answers && grep -q '"uid 65534: VA spaces are created too fast' /tmp/status; }
within 60 "its user's processes are still told apart" is_over
# Its children are what it costs.
cost processes
get /metrics || fail "no metrics"
grep -qx 'uvmd_events_dropped_total{.*reason="ring_full"} 0' /tmp/answer || fail "the ring was full"
end

begin spaces
within 30 "who fills the map is not named" degraded quota_reached
grep -q "process $attack of [^\"]*(*uid 65534)*: 256 of at most 256 VA spaces" /tmp/status || fail "it is not said what it has"
get /readyz || fail "it is not ready, though it counts others"
grep -q '^degraded: quota_reached: ' /tmp/answer || fail "readyz does not say that it is degraded"
get /metrics || fail "no metrics"
grep -qx 'uvmd_degraded{.*reason="quota_reached"} 1' /tmp/answer || fail "no metric tells that it is degraded"
# By a reading, of which there is one a second.
all_refused() { get /metrics && [ "$(sed -n 's/^uvmd_quota_refusals_total{.*resource="va_spaces",uid="65534"} //p' /tmp/answer)" -gt 8000 ]; }
within 30 "refusals are not counted" all_refused
work spaces
hold spaces
end

begin calls
work calls
get /metrics || fail "no metrics"
# The process at its quota of VA spaces cannot fill the map of counts.
grep -qx 'uvmd_events_dropped_total{.*reason="counts_full"} 0' /tmp/answer || fail "the counts were full"
hold calls
end

# Whoever was refused has all again once it holds nothing any more.
begin churn
is_seen() { uvmctl ps -o json >/tmp/answer 2>/dev/null && grep -q "\"pid\": *$attack," /tmp/answer; }
within 30 "the user's next process is not listed" is_seen
end
stop_uvmd
echo "ok"
