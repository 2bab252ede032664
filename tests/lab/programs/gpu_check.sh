#!/bin/sh
# the check on a real GPU, whole, on the lab's: predictions, the driver's counters and uvmd agree
# set: LAB_UVMD=no
# gpu_mem_mib: 1024
# timeout: 1800
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence="/tmp/told /tmp/progress /tmp/out/uvmd.log"
# The binaries that a node with a GPU runs. Times mean nothing here: little memory for them, and no hurry.
LD_LIBRARY_PATH=/lab/cuda gpu-check --bin-dir /usr/bin --out /tmp/out --mib 16 --rounds 3 --deadline 1500 >/tmp/told 2>/tmp/progress || fail "something differed"
! grep -q 'not checked' /tmp/told || fail "something was not checked"
grep '^| ' /tmp/told
