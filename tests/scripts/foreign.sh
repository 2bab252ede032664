#!/usr/bin/env bash
# Programs of others, unmodified, on the lab's CUDA: tinygrad and Burn train; kernels of Numba, cuda-bindings and Taichi compute what is right.
#
#   tests/scripts/foreign.sh         natively, on plain memory
#   tests/scripts/foreign.sh --lab numba|taichi   those of one in the lab, on a card smaller than their memory
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"

numba=$(foreign_dir numba) taichi=$(foreign_dir taichi) burn=$(foreign_dir burn)
if [ ! -e "$numba/complete" ] || [ ! -e "$taichi/complete" ] || [ ! -e "$burn" ]; then scripts/setup --foreign; fi
if [ "${1:-}" = --lab ]; then
  case ${2:-} in
    numba) program=kernels.py gpu_mem_mib=8 ;;
    taichi) program=fields.py gpu_mem_mib=8 ;;
    *) die "which programs: numba or taichi?" ;;
  esac
  exec scripts/lab script "tests/lab/programs/$2.sh" --userland "$2" --gpu-mem-mib $gpu_mem_mib --add "lab/programs/$program" --timeout 1200
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
scripts/build --lab >/dev/null
ln -s "$CARGO_TARGET_DIR/release/libcuda_lab.so" "$work/libcuda.so.1"
ln -s libcuda.so.1 "$work/libcuda.so"

# on_cuda NAME [VARIABLE=VALUE]... COMMAND...: on the lab's CUDA; its lines are in a file of this name.
on_cuda() {
  local name=$1
  shift
  say "$name"
  env LD_LIBRARY_PATH="$work" "$@" >"$work/$name" || die "$name failed: $(cat "$work/$name")"
  cat "$work/$name"
}
learns() {
  python3 -c 'import json, sys; losses = [json.loads(line)["loss"] for line in sys.stdin]; sys.exit(not losses[-1] < losses[0])' <"$work/$1" ||
    die "$1 does not learn"
}

on_cuda cuda-bindings "$numba/bin/python" lab/programs/saxpy.py
on_cuda tensor CUDA_LAB_ARCHITECTURE=ampere "$numba/bin/python" lab/programs/tensor.py
on_cuda numba "$numba/bin/python" lab/programs/kernels.py
on_cuda taichi "$taichi/bin/python" lab/programs/fields.py
on_cuda tinygrad PYTHONPATH="$(foreign_dir tinygrad)" DEV=CUDA:PTX PARALLEL=0 CACHEDB="$work/cache" python3 lab/programs/train.py cnn --iterations 4
learns tinygrad
on_cuda burn CUDA_PATH="$burn/site/nvidia/cuda_runtime" LD_LIBRARY_PATH="$work:$burn/site/nvidia/cuda_nvrtc/lib" "$burn/bin/burn-train" 6
learns burn
