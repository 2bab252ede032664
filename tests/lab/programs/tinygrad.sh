#!/bin/sh
# tinygrad, unmodified, trains on a card smaller than its memory: losses are the native run's, uvmd's figures the driver's, and its verdict is right
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
# shellcheck source=lab/vm/python
. /lab/python
evidence='/tmp/losses /tmp/program /tmp/explained /tmp/one'
bits() { grep -o '"bits": "[^"]*"' "$1"; }

iterations=$(wc -l </lab/files/native)
state_becomes counting
mkfifo /tmp/stdin
# What it allocates of the GPU's memory is managed, as the helper will make it.
CUDA_LAB_MANAGED=1 python /lab/files/train.py mlp --iterations "$iterations" --hold </tmp/stdin >/tmp/losses 2>/tmp/program &
program=$!
exec 5>/tmp/stdin
thrashes() { uvmctl explain "$(pidof python3.11)" >/tmp/explained 2>&1 && grep -qi 'capacity thrash' /tmp/explained; }
all_done() { [ "$(wc -l </tmp/losses)" = "$iterations" ] || ! kill -0 $program; }
within 300 "uvmd sees no capacity thrash" thrashes
within 300 "the training does not end" all_done
[ "$(bits /tmp/losses)" = "$(bits /lab/files/native)" ] || fail "the losses differ from the native run's"
cat /tmp/losses

figures_are_the_drivers
# It runs under another root, as programs of containers do.
[ "$(figure managed_bytes)" -gt 0 ] || fail "uvmd sees no managed memory"
[ "$(of_link copied_dtoh_bytes)" -gt 0 ] || fail "nothing was evicted"
grep -i -A 3 'capacity thrash' /tmp/explained
all_calls_are_recorded "$(pidof python3.11)" /tmp/log*
[ "$(recorded_calls launch)" -gt 0 ] || fail "no launch is recorded"
exec 5>&-
wait $program || fail "the program failed"
