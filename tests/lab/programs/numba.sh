#!/bin/sh
# kernels of Numba, unmodified, on a card smaller than their memory: results are right, uvmd's figures the driver's
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
# shellcheck source=lab/vm/python
. /lab/python
evidence='/tmp/results /tmp/program /tmp/one'

state_becomes counting
touch /tmp/results
mkfifo /tmp/stdin
python /lab/files/kernels.py --mib 12 --hold </tmp/stdin >/tmp/results 2>/tmp/program &
program=$!
exec 5>/tmp/stdin
all_done() { [ "$(wc -l </tmp/results)" = 3 ] || ! kill -0 $program; }
within 900 "the kernels do not end" all_done
[ "$(wc -l </tmp/results)" = 3 ] || fail "the program ended early"
cat /tmp/results

figures_are_the_drivers
# More than arrives of the CPU's own accesses: both passes, of arrays that do not fit.
[ "$(of_link copied_htod_bytes)" -gt $((12 << 20)) ] || fail "no array arrived again"
all_calls_are_recorded "$(pidof python3.11)" /tmp/log*
[ "$(recorded_calls launch)" -gt 0 ] || fail "no launch is recorded"
exec 5>&-
wait $program || fail "a result is wrong"
