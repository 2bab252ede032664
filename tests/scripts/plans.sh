#!/usr/bin/env bash
# Plans that are made live: natively on plain memory the moves are those of the plan; in the lab, on a card smaller than a training, the link carries less.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"

gpu_mib=32 iterations=13 planned=2 operations=56
tinygrad=$(foreign_dir tinygrad)
[ -e "$tinygrad" ] || scripts/setup --no-lab
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
scripts/build --lab >/dev/null
cargo build --locked --release -p plans --example follow
cargo build --locked --release -p planner --example bound
examples=$CARGO_TARGET_DIR/release/examples
mkdir "$work/cuda" "$work/files"
ln -s "$CARGO_TARGET_DIR/release/libcuda_lab.so" "$work/cuda/libcuda.so.1"

say "natively"
tests/scripts/plans.py target/helper/libuvmd_helper.so "$examples/follow" "$work/cuda" "$tinygrad" --gpu-mib $gpu_mib
train() {
  env LD_LIBRARY_PATH="$work/cuda" PYTHONPATH="$tinygrad" DEV=CUDA:PTX PARALLEL=0 CACHEDB="$work/cache" JIT=2 "$@" \
    python3 lab/programs/train.py deep --managed --iterations $iterations
}
train CUDA_LAB_LOG="$work/log" CUDA_LAB_LOG_ACCESSES=1 >"$work/files/native"
"$examples/bound" "$work"/log.* $gpu_mib $operations 3 >"$work/bound"

echo $gpu_mib >"$work/files/gpu_mib"
echo $planned >"$work/files/planned"
echo 2 >"$work/files/jit"
added=(--add "$examples/follow" --add lab/programs/train.py)
for file in "$work"/files/*; do added+=(--add "$file"); done
scripts/lab script tests/lab/programs/plans.sh --userland python --gpu-mem-mib $gpu_mib --timeout 1800 "${added[@]}" 2>&1 | tee "$work/report" >&2
tests/scripts/plans_report.py "$work/report" "$work/bound"
