#!/bin/sh
# uvmd plans the moves of a training by override: fewer bytes over the link with the plan, as many as before without it
# set: LAB_UVMD=no
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
# shellcheck source=lab/vm/python
. /lab/python
evidence="/tmp/decisions /tmp/explained /tmp/losses /tmp/program $UVMD_LOG"
bits() { grep -o '"bits": "[^"]*"' "$1"; }
link() { awk '/^copied_(htod|dtoh)_bytes:/ { sum += $2 } END { print sum }' /proc/driver/swgpu/gpus/*/link; }
iterations() { wc -l </tmp/losses; }

# What the link carries in each iteration, as the lab's GPU counts it: "iteration bytes".
: >/tmp/losses
: >/tmp/per_iteration
watch_link() {
  seen=0 before=$(link)
  while :; do
    now=$(iterations)
    if [ "$now" != "$seen" ]; then
      counted=$(link)
      [ $((now - seen)) != 1 ] || echo "$seen $((counted - before))" >>/tmp/per_iteration
      seen=$now before=$counted
    fi
    usleep 50000
  done
}
# median FROM TO: of the iterations from one on, and before the other.
median() {
  awk -v from="$1" -v to="$2" '$1 >= from && $1 < to { print $2 }' /tmp/per_iteration | sort -n |
    awk '{ all[NR] = $1 } END { if (NR) print NR % 2 ? all[(NR + 1) / 2] : int((all[NR / 2] + all[NR / 2 + 1]) / 2) }'
}

start uvmd --set policy.enabled=true --set policy.state_dir=/run/state --set policy.host_reserve=64MiB
state_becomes counting
# JIT=2 launches kernels one by one: nothing can move between those of a graph.
JIT=2 python /lab/files/train.py deep --managed >/tmp/losses 2>/tmp/program &
watch_link &
watcher=$!
has_iterated() { [ "$(iterations)" -ge "$1" ]; }
within 600 "the training does not begin" has_iterated 1
pid=$(pidof python3.11)
uvmctl policy set --id plan --pid "$pid" --policy "$(cat /lab/files/policy)" --mode act || fail "the override is refused"
decided() {
  uvmctl policy explain "$pid" >/tmp/explained 2>&1
  uvmctl decisions -o json >/tmp/decisions 2>/dev/null && grep -q "\"stage\": *\"\($1\)\"" /tmp/decisions
}
within 600 "there is no plan" decided 'trial'
echo "on trial at iteration $(iterations)"
within 2700 "the trial does not end" decided 'confirmed\|rolled_back\|ended\|denied'
uvmctl decisions -o json
decided confirmed || fail "the plan is not confirmed"
confirmed=$(iterations)
within 900 "the training does not go on" has_iterated $((confirmed + 4))
uvmctl policy unset plan || fail "the override stays"
off=$(iterations)
within 60 "the plan is not withdrawn" decided ended
within 900 "the training does not go on without the plan" has_iterated $((off + 6))
kill $watcher
kill -TERM "$pid"
echo "iteration, bytes over the link:"
cat /tmp/per_iteration
uvmctl decisions -o json >/tmp/decisions
figure() { tr -d ' \n' </tmp/decisions | grep -o "\"$1\":{[^}]*}" | head -1 | grep -o '"link_bytes":[0-9]*' | grep -o '[0-9]*$'; }
before=$(figure without) with=$(median $((confirmed + 1)) "$off") after=$(median $((off + 2)) 100000)
echo "medians of bytes an iteration: $before before, $(figure with) on trial, $with confirmed, $after after"
[ "$with" -lt $((before * 97 / 100)) ] || fail "the plan saves less than 3 %"
[ "$after" -gt $((with * 103 / 100)) ] || fail "the bytes do not come back"
head -n "$(iterations)" /lab/files/native >/tmp/native
[ "$(bits /tmp/losses | head -n "$(wc -l </tmp/native)")" = "$(bits /tmp/native)" ] || fail "the losses differ from the native run's"
echo "the losses of $(wc -l </tmp/native) iterations are the native run's"
stop_uvmd
