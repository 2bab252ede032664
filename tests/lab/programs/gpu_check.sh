#!/bin/sh
# the check on a real GPU, whole, on the lab's: predictions, the driver's counters, and uvmd's probes and tools agree
# set: LAB_UVMD=no
# gpu_mem_mib: 1024
# timeout: 1800
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence="/tmp/told /tmp/progress /tmp/out/uvmd-*.log"
# The binaries that a node with a GPU runs. Times mean nothing here: little memory for them, and no hurry.
LD_LIBRARY_PATH=/lab/cuda gpu-check --bin-dir /usr/bin --out /tmp/out --mib 16 --quick --deadline 1500 >/tmp/told 2>/tmp/progress || fail "something differed"
! grep -q 'not checked' /tmp/told || fail "something was not checked"
grep '^| ' /tmp/told

# PyTorch's part, with another program in its place, which waits for lines as well.
LD_LIBRARY_PATH=/lab/cuda gpu-check program --bin-dir /usr/bin --out /tmp/out --deadline 300 -- \
  uvm-workload ping-pong --hold --mib 16 >/dev/null 2>/tmp/told || fail "a program is not counted as by the driver's counters"
! grep -q 'not checked' /tmp/told || fail "a source does not count"
grep '^| ' /tmp/told
