#!/bin/sh
# tinygrad, unmodified, trains on a card smaller than its memory: losses are the native run's, uvmd's figures the driver's, and its verdict is right
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
# shellcheck source=lab/vm/python
. /lab/python
evidence='/tmp/results /tmp/program /tmp/explained /tmp/one'
bits() { grep -o '"bits": "[^"]*"' "$1"; }

iterations=$(wc -l </lab/files/native)
state_becomes counting
# What it allocates of the GPU's memory is managed, as the helper will make it.
export CUDA_LAB_MANAGED=1
hold_program python /lab/files/train.py mlp --iterations "$iterations"
thrashes() { uvmctl explain "$(pidof python3.11)" >/tmp/explained 2>&1 && grep -qi 'capacity thrash' /tmp/explained; }
within 300 "uvmd sees no capacity thrash" thrashes
await_results "$iterations" 300
[ "$(bits /tmp/results)" = "$(bits /lab/files/native)" ] || fail "the losses differ from the native run's"
cat /tmp/results

figures_are_the_drivers
# It runs under another root, as programs of containers do.
[ "$(figure managed_bytes)" -gt 0 ] || fail "uvmd sees no managed memory"
[ "$(of_link copied_dtoh_bytes)" -gt 0 ] || fail "nothing was evicted"
grep -i -A 3 'capacity thrash' /tmp/explained
all_calls_are_recorded "$(pidof python3.11)" /tmp/log*
[ "$(recorded_calls launch)" -gt 0 ] || fail "no launch is recorded"
end_program "the program failed"
