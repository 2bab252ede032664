#!/bin/sh
# tinygrad trains on a card smaller than its memory, without a plan, with plans that are made while it runs, one after the other, and without one again
# set: LAB_UVMD=no
# clock: instructions
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
# shellcheck source=lab/vm/python
. /lab/python
evidence='/tmp/lines /tmp/program'
bits() { grep -o '"bits": "[^"]*"' "$1"; }

touch /tmp/lines
gpu=$(basename /proc/driver/swgpu/gpus/*)
# The helper is in the program alone: what starts it is static. JIT=2 launches kernels one by one.
# shellcheck disable=SC2046
PATH=/usr/bin:/bin:$PATH /lab/files/follow --gpu "$gpu" $(cat /lab/files/follow_options) \
  --link /proc/driver/swgpu/gpus/"$gpu"/link /usr/lib/uvmd/libuvmd_helper.so \
  /bin/busybox env HOME=/tmp LD_LIBRARY_PATH=/lab/cuda PYTHONPATH=/site DEV=CUDA:PTX PARALLEL=0 JIT=2 \
  /bin/busybox chroot /python /usr/bin/python3.11 /lab/files/train.py $(cat /lab/files/program_options) \
  >/tmp/lines 2>/tmp/program &
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
