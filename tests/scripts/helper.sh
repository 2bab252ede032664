#!/usr/bin/env bash
# The helper in programs on the lab's CUDA, natively: what it records is what the driver logged, call by call, it does no harm, and it
# carries out commands and plans.
#
#   tests/scripts/helper.sh          all of it
#   tests/scripts/helper.sh --long   with Burn, too, and 200 kills of each side, 2,000 of them beside commands
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"

kills=10 with_burn=0
[ "${1:-}" != --long ] || kills=200 with_burn=1
tinygrad=$(foreign_dir tinygrad) numba=$(foreign_dir numba) burn=$(foreign_dir burn)
if [ ! -e "$tinygrad" ] || [ ! -e "$numba/complete" ]; then scripts/setup --no-lab --numba; fi
if [ $with_burn = 1 ] && [ ! -e "$burn" ]; then scripts/setup --no-lab --foreign; fi
scripts/build --lab >/dev/null
# built bin|test NAME: as the job before it builds all tests, with their features, so that nothing is compiled twice.
built() {
  cargo build --locked --workspace --tests --bin record --bin plan --message-format json 2>/dev/null |
    python3 -c '
import json, sys
kind, name = sys.argv[1:]
for line in map(json.loads, sys.stdin):
    if line.get("executable") and line["target"]["name"] == name and line["target"]["kind"] == [kind] and line["profile"]["test"] == (kind == "test"):
        print(line["executable"])' "$@"
}
helper=$UVMD_ROOT/target/helper/libuvmd_helper.so record=$(built bin record) plan=$(built bin plan) driver_tests=$(built test driver)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/cuda"
ln -s "$UVMD_ROOT/target/release/libcuda_lab.so" "$work/cuda/libcuda.so.1"
programs=$work/programs
tests/helper/build "$programs" "$work/cuda"

# is_recorded WHAT EXIT PROGRAM...: a program with the helper in it; what was recorded is what the driver logged.
is_recorded() {
  local what=$1 expected=$2 code=0 log counts
  shift 2
  rm -rf "$work/log" && mkdir "$work/log"
  CUDA_LAB_LOG=$work/log/of "$record" "$helper:$programs/hold.so" "$work/calls" "$@" >"$work/out" 2>&1 || code=$?
  [ "$code" = "$expected" ] || { tail -n 30 "$work/out" >&2 && die "$what: exit code $code"; }
  grep -q 'dropped: 0, late: 0, unrecorded: 0, unknown: 0, invalid: 0' "$work/out" || die "$what: $(tail -n 1 "$work/out")"
  # Tests that start processes of their own have logs of them, too.
  log=$(find "$work/log" -type f -printf '%s %p\n' | sort -n | tail -n 1 | cut -d ' ' -f 2)
  counts=$(tests/scripts/calls.py "$log" "$work/calls") || die "$what: what was recorded is not what was done"
  say "$what: $counts"
}
export LD_LIBRARY_PATH=$work/cuda PARALLEL=0
for workload in $(target/release/uvm-workload --list | awk '{ print $1 }'); do
  is_recorded "workload $workload" 0 target/release/uvm-workload --mib 16 --iterations 3 "$workload"
done
for what in run threads graph unload fork detach; do is_recorded "program linked to the driver, $what" 5 "$programs/program" "$what"; done
helper=$programs/liblimiter.so:$helper is_recorded "program after a library that limits memory" 5 "$programs/program" run
is_recorded "allocator for PyTorch" 0 "$programs/pluggable" "$helper"
is_recorded "allocator for PyTorch, before any context" 0 "$programs/pluggable" "$helper" first
is_recorded "program linked to a stub of the driver" 0 "$programs/stubbed"
for how in plain process reopened; do is_recorded "program that finds the driver by itself, $how" 0 "$programs/handles" "$how"; done
for library in linked_now linked_lazy finds_now finds_lazy depends_now; do
  is_recorded "library opened with RTLD_DEEPBIND, $library" 0 "$programs/deep" "$programs/deep_$library.so" "${library#*_}"
done
for model in mlp cnn; do
  PYTHONPATH=$tinygrad DEV=CUDA:PTX CACHEDB=$work/cache is_recorded "tinygrad, $model" 0 python3 lab/programs/train.py $model --iterations 3
done
ln -s libcuda.so.1 "$work/cuda/libcuda.so"
is_recorded "cuda-bindings" 0 "$numba/bin/python" lab/programs/saxpy.py
is_recorded "Numba" 0 "$numba/bin/python" lab/programs/kernels.py
if [ $with_burn = 1 ]; then
  CUDA_PATH=$burn/site/nvidia/cuda_runtime LD_LIBRARY_PATH=$work/cuda:$burn/site/nvidia/cuda_nvrtc/lib is_recorded "Burn" 0 "$burn/bin/burn-train" 3
fi
LD_LIBRARY_PATH=$(dirname "$driver_tests")/cuda-lab is_recorded "the driver's own tests" 0 "$driver_tests" --test-threads 8
of_others=(--tinygrad "$tinygrad" --numba "$numba")
tests/scripts/helper_harm.py "$helper" "$record" "$work/cuda" "$programs" "${of_others[@]}" --kills $kills
tests/scripts/helper_filters.py "$helper" "$work/cuda" "$programs"
if [ "$(id -u)" = 0 ]; then
  tests/scripts/helper_acts.py "$helper" "$record" "$work/cuda" "$programs" --workload target/release/uvm-workload "${of_others[@]}" --kills $((kills * 10))
  tests/scripts/helper_plans.py "$helper" "$plan" "$work/cuda" "$programs" --kills $kills
else
  say "not run: commands to the helper and plans, which take root"
fi
