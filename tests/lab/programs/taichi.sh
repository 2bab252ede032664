#!/bin/sh
# programs of Taichi, unmodified, on a card smaller than their memory: results are those of its CPU backend, uvmd's figures the driver's
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
# shellcheck source=lab/vm/python
. /lab/python
evidence='/tmp/results /tmp/program /tmp/one'

state_becomes counting
touch /tmp/results
mkfifo /tmp/stdin
# What it allocates of the GPU's memory is managed, as the helper will make it. It looks for the driver by the name for development.
ln -sf libcuda.so.1 /lab/cuda/libcuda.so
CUDA_LAB_MANAGED=1 CUDA_LAB_POOLS=1 python /lab/files/fields.py --mib 10 --steps 1 --pool-mib 4 --hold </tmp/stdin >/tmp/results 2>/tmp/program &
program=$!
exec 5>/tmp/stdin
# Taichi prints lines of its own.
results() { grep -c largest_difference /tmp/results; }
all_done() { [ "$(results)" = 2 ] || ! kill -0 $program 2>/dev/null; }
within 900 "the programs do not end" all_done
[ "$(results)" = 2 ] || fail "the program ended early"
cat /tmp/results

figures_are_the_drivers
[ "$(of_link copied_dtoh_bytes)" -gt $((10 << 20)) ] || fail "nothing was evicted"
all_calls_are_recorded "$(pidof python3.11)" /tmp/log*
[ "$(recorded_calls launch)" -gt 0 ] || fail "no launch is recorded"
exec 5>&-
wait $program || fail "a result is wrong"
