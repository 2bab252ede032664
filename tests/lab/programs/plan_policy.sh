#!/bin/sh
# uvmd plans the moves of a training by override: less of what the plan promises, as much as before without it; harm is found out
# set: LAB_UVMD=no
# clock: instructions
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
# shellcheck source=lab/vm/python
. /lab/python
evidence="/tmp/decisions /tmp/explained /tmp/per_iteration /tmp/losses /tmp/program $UVMD_LOG"
bits() { grep -o '"bits": *"[^"]*"' "$1" | tr -d ' '; }
link() { awk '/^copied_(htod|dtoh)_bytes:/ { sum += $2 } END { print sum }' /proc/driver/swgpu/gpus/*/link; }
# Of all processes, of which one alone has any.
faults() { uvmctl status -o json | tr -d ' \n' | sed 's/.*"total":{//; s/.*"fault_entries":\([0-9]*\).*/\1/'; }
iterations() { wc -l </tmp/losses; }

# What the link carries in each iteration, as the lab's GPU counts it, and its faults, as uvmd's probes do: "iteration bytes faults".
: >/tmp/losses
: >/tmp/per_iteration
watch_iterations() {
  seen=0 bytes_before=$(link) faults_before=$(faults)
  while :; do
    now=$(iterations)
    if [ "$now" != "$seen" ]; then
      bytes=$(link) faults=$(faults)
      [ $((now - seen)) != 1 ] || echo "$seen $((bytes - bytes_before)) $((faults - faults_before))" >>/tmp/per_iteration
      seen=$now bytes_before=$bytes faults_before=$faults
    fi
    usleep 50000
  done
}
# median FROM TO: what is promised, of the iterations from one on, and before the other.
median() {
  awk -v from="$1" -v to="$2" -v column=$column '$1 >= from && $1 < to { print $column }' /tmp/per_iteration | sort -n |
    awk '{ all[NR] = $1 } END { if (NR) print NR % 2 ? all[(NR + 1) / 2] : int((all[NR / 2] + all[NR / 2 + 1]) / 2) }'
}

read -r options </lab/files/options
# shellcheck disable=SC2086 # words
start uvmd --set policy.enabled=true --set policy.state_dir=/run/state --set policy.host_reserve=64MiB $options
state_becomes counting
# The helper is in the program alone: what starts it is static.
training env PATH=/usr/bin HOME=/tmp CUDA_LAB_LOG=/tmp/log LD_PRELOAD="$preloaded" UVMD_HELPER=record /bin/busybox env >/tmp/losses 2>/tmp/program &
watch_iterations &
watcher=$!
has_iterated() { [ "$(iterations)" -ge "$1" ]; }
within 600 "the training does not begin" has_iterated 1
pid=$(pidof python3.11 burn-train)
# Of the last decision.
decided() {
  uvmctl policy explain "$pid" >/tmp/explained 2>&1
  uvmctl decisions -n 1 -o json >/tmp/decisions 2>/dev/null && grep -q "\"policy\": *\"$policy\"" /tmp/decisions && grep -q "\"stage\": *\"\($1\)\"" /tmp/decisions
}
# figure NAME ARM: of the decision's evidence.
figure() { tr -d ' \n' </tmp/decisions | grep -o "\"$2\":{[^}]*}" | head -1 | grep -o "\"$1\":[0-9]*" | grep -o '[0-9]*$'; }

is_confirmed() {
  decided confirmed || fail "the plan is not confirmed"
  confirmed=$(iterations)
  within 900 "the training does not go on" has_iterated $((confirmed + 4))
  uvmctl policy unset plan || fail "the override stays"
  off=$(iterations)
  within 60 "the plan is not withdrawn" decided ended
  within 900 "the training does not go on without the plan" has_iterated $((off + 6))
  decided ended
  before=$(figure $promise without) with=$(median $((confirmed + 1)) "$off") after=$(median $((off + 2)) 100000)
  echo "$policy: medians of $promise of an iteration: $before before, $(figure $promise with) on trial, $with confirmed, $after after"
  [ "$with" -lt $((before * left / 100)) ] || fail "the plan saves less than it promises"
  [ "$after" -ge $((before * 90 / 100)) ] || fail "they do not come back"
  # What is harm to a confirmed plan, at the most noise.
  [ "$(figure link_bytes with)" -le $(($(figure link_bytes without) * 125 / 100)) ] || fail "the link carries more"
}

# Within its first block: one block was measured, or two if it was found out at the end.
is_found_out() {
  decided rolled_back || fail "the plan is not rolled back"
  off=$(iterations)
  grep -q 'a block of iterations with the plan copied' /tmp/decisions || fail "it is rolled back for another reason"
  blocks=$(grep -o '"blocks": *[0-9]*' /tmp/decisions | head -1 | grep -o '[0-9]*$')
  [ "$blocks" -le 2 ] || fail "it is found out after $blocks blocks"
  [ "$(tr -d ' \n' </tmp/decisions | grep -o '"moves":[0-9]*' | head -1 | grep -o '[0-9]*$')" -gt 0 ] || fail "the helper has moved nothing"
  # The override is still there: what is taken back is so by the rollback.
  within 900 "the training does not go on without the plan" has_iterated $((off + 6))
  before=$(figure link_bytes without) after=$(median $((off + 2)) 100000)
  echo "$policy: rolled back at iteration $off, after $blocks blocks: bytes of an iteration $before before, $after after"
  [ "$after" -le $((before * 125 / 100)) ] || fail "the plan is still followed"
  uvmctl policy unset plan || fail "the override stays"
}

# Probes come before the plan. What they find, and where memory lies, is printed for a comparison with the log of a native run.
is_probed() {
  is_probing() { uvmctl policy explain "$pid" 2>/dev/null | grep -q '^  Probes:'; }
  within 900 "no launch is probed" is_probing
  echo "launches are probed at iteration $(iterations)"
  within 4500 "there is no plan" decided trial
  uvmctl policy explain "$pid"
  grep 'probe of\|were probed' "$UVMD_LOG" || fail "nothing was probed"
  grep '"op": *"malloc"' /tmp/log* /python/tmp/log* 2>/dev/null | grep -o '{.*' | sort -u
}

# supervise POLICY: from its override to the end of that.
supervise() {
  policy=$1
  # What the policy promises: its name in the arms of a decision, its column in /tmp/per_iteration, and how much of it may be left, in percent.
  case $policy in
    pump) promise=faults column=3 left=90 ;;
    *) promise=link_bytes column=2 left=97 ;;
  esac
  uvmctl policy set --id plan --pid "$pid" --policy "$policy" --mode act || fail "the override is refused"
  case $options in
    *touch_probe=true*) is_probed ;;
    *) within 900 "there is no plan" decided trial ;;
  esac
  echo "$policy: on trial at iteration $(iterations)"
  within 2700 "the trial does not end" decided 'confirmed\|rolled_back\|ended\|denied'
  cat /tmp/decisions
  case $policy in
    harmful-plan) is_found_out ;;
    *) is_confirmed ;;
  esac
}

# live POLICY: one without plans, which acts on what it sees from outside, for 24 iterations. What comes of it is not known before.
live() {
  column=2
  off=$(iterations)
  within 900 "the training does not go on" has_iterated $((off + 8))
  on=$(iterations)
  uvmctl policy set --id live --pid "$pid" --policy "$1" --mode act || fail "the override is refused"
  within 1800 "the training does not go on with $1" has_iterated $((on + 24))
  uvmctl decisions -n 20 >/tmp/decisions || fail "no decisions"
  uvmctl policy unset live || fail "the override stays"
  back=$(iterations)
  within 900 "the training does not go on without $1" has_iterated $((back + 6))
  before=$(median $((off + 2)) "$on") with=$(median $((on + 4)) "$back") after=$(median $((back + 3)) 100000)
  echo "$1: medians of bytes over the link: $before without it, $with with it, $after after"
  cat /tmp/decisions
  [ "$with" -gt 0 ] || fail "no iteration was measured"
  [ "$after" -ge $((before * 90 / 100)) ] || fail "they do not come back"
}

read -r policies </lab/files/policies
for policy in $policies; do
  case $policy in
    auto-live) live "$policy" ;;
    *) supervise "$policy" ;;
  esac
done
kill $watcher
kill -TERM "$pid"
echo "iteration, bytes over the link, faults:"
cat /tmp/per_iteration
head -n "$(iterations)" /lab/files/native >/tmp/native
[ "$(bits /tmp/losses | head -n "$(wc -l </tmp/native)")" = "$(bits /tmp/native)" ] || fail "the losses differ from the native run's"
echo "the losses of $(wc -l </tmp/native) iterations are the native run's"
stop_uvmd
