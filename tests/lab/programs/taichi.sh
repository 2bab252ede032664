#!/bin/sh
# programs of Taichi, unmodified, on a card smaller than their memory: results are those of its CPU backend, uvmd's figures the driver's
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
# shellcheck source=lab/vm/python
. /lab/python
evidence='/tmp/results /tmp/program /tmp/one'

state_becomes counting
# What it allocates of the GPU's memory is managed, as the helper will make it.
export CUDA_LAB_MANAGED=1 CUDA_LAB_POOLS=1
hold_program python /lab/files/fields.py --mib 10 --steps 1 --pool-mib 4
await_results 2 900
cat /tmp/results

figures_are_the_drivers
[ "$(of_link copied_dtoh_bytes)" -gt $((10 << 20)) ] || fail "nothing was evicted"
all_calls_are_recorded "$(pidof python3.11)" /tmp/log*
[ "$(recorded_calls launch)" -gt 0 ] || fail "no launch is recorded"
end_program "a result is wrong"
