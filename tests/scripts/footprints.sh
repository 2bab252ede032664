#!/usr/bin/env bash
# Tables of docs/measurements/footprints.md: memory that is inferred from arguments of launches beside the memory that the lab's CUDA saw
# accessed, natively on plain memory; and the bound of bytes over the link.
#
#   tests/scripts/footprints.sh [FOLDER]   logs stay in FOLDER, if there is one
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"

tinygrad=$(foreign_dir tinygrad) numba=$(foreign_dir numba) burn=$(foreign_dir burn)
if [ ! -e "$tinygrad" ] || [ ! -e "$numba/complete" ] || [ ! -e "$burn" ]; then scripts/setup --no-lab --foreign; fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
logs=${1:-$work/logs}
mkdir -p "$work/cuda" "$logs"
cargo build --locked --release -p libcuda -p workloads
cargo build --locked --release -p evaluation
ln -s "$CARGO_TARGET_DIR/release/libcuda_lab.so" "$work/cuda/libcuda.so.1"
ln -s libcuda.so.1 "$work/cuda/libcuda.so"

arguments=()
# log_of NAME COMMAND...: the log of a program, for the table.
log_of() {
  local name=$1
  shift
  say "$name"
  rm -f "$logs/$name".*
  CUDA_LAB_LOG=$logs/$name CUDA_LAB_LOG_ACCESSES=1 "$@" >"$work/out" || die "$name failed: $(cat "$work/out")"
  arguments+=("$name=$(echo "$logs/$name".*)")
}
export LD_LIBRARY_PATH=$work/cuda
for model in mlp cnn; do
  log_of "tinygrad-$model" env PYTHONPATH="$tinygrad" DEV=CUDA:PTX PARALLEL=0 CACHEDB="$work/cache" python3 lab/programs/train.py $model --iterations 4
done
log_of numba "$numba/bin/python" lab/programs/kernels.py
log_of burn env CUDA_PATH="$burn/site/nvidia/cuda_runtime" LD_LIBRARY_PATH="$work/cuda:$burn/site/nvidia/cuda_nvrtc/lib" "$burn/bin/burn-train" 4
for workload in $("$CARGO_TARGET_DIR/release/uvm-workload" --list | awk '{ print $1 }'); do
  log_of "$workload" "$CARGO_TARGET_DIR/release/uvm-workload" --mib 16 --iterations 3 "$workload"
done
"$CARGO_TARGET_DIR/release/evaluation" footprints "${arguments[@]}"
