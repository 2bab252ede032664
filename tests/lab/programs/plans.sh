#!/bin/sh
# tinygrad or Burn trains on a card smaller than its memory, without a plan, with plans that are made while it runs, one after the other, and without one again
# set: LAB_UVMD=no
# clock: instructions
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
# shellcheck source=lab/vm/python
. /lab/python
evidence='/tmp/lines /tmp/program'
bits() { grep -o '"bits": *"[^"]*"' "$1" | tr -d ' '; }

touch /tmp/lines
gpu=$(basename /proc/driver/swgpu/gpus/*)
# The helper is in the program alone: what starts it is static.
# shellcheck disable=SC2046
training env PATH="/usr/bin:/bin:$PATH" /lab/files/follow --gpu "$gpu" $(cat /lab/files/follow_options) \
  --link /proc/driver/swgpu/gpus/"$gpu"/link "$preloaded" /bin/busybox env HOME=/tmp >/tmp/lines 2>/tmp/program &
program=$!
# As they come.
tail -f /tmp/lines &
shown=$!
wait $program || fail "the program failed"
sleep 1
kill $shown
grep '"loss"' /tmp/lines >/tmp/losses
[ "$(bits /tmp/losses)" = "$(bits /lab/files/native)" ] || fail "the losses differ from the native run's"
echo "the losses of $(wc -l </tmp/losses) iterations are the native run's"
