#!/bin/sh
# kernels of Numba, unmodified, on a card smaller than their memory: results are right, uvmd's figures the driver's
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
# shellcheck source=lab/vm/python
. /lab/python
evidence='/tmp/results /tmp/program /tmp/one'

state_becomes counting
hold_program python /lab/files/kernels.py --mib 12
await_results 3 900
cat /tmp/results

figures_are_the_drivers
# More than arrives of the CPU's own accesses: both passes, of arrays that do not fit.
[ "$(of_link copied_htod_bytes)" -gt $((12 << 20)) ] || fail "no array arrived again"
all_calls_are_recorded "$(pidof python3.11)" /tmp/log*
[ "$(recorded_calls launch)" -gt 0 ] || fail "no launch is recorded"
end_program "a result is wrong"
