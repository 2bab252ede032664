#!/bin/sh
# loads and stores of a process are accesses of the GPU, also of processes that are killed
# set: LAB_UVMD=no
# set: LAB_SWGPU_PARAMETERS=gpus=2
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence=/tmp/mirror
lab-runner mirror >/tmp/mirror 2>&1 || fail "a check failed"
cat /tmp/mirror
# Three processes of three quarters of the card each.
lab-runner mirror --kills "${KILLS:-12}" --mib 48 >/tmp/mirror 2>&1 || fail "kills did harm"
cat /tmp/mirror
