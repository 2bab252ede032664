#!/bin/sh
# managed variables, barriers of a grid, memory that kernels allocate and tensor cores, by a program that opens libcuda.so
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence="/tmp/program"

state_becomes counting
LD_LIBRARY_PATH=/lab/cuda features /lab/kernels >/tmp/program 2>&1 || fail "a feature is missing"
cat /tmp/program
[ "$(grep -c ': right$' /tmp/program)" = 6 ] || fail "not all features were tried"
