#!/usr/bin/env bash
# A training of tinygrad on the lab's CUDA: natively on plain memory, and in the lab on a card smaller than its memory, with the same losses.
#
#   tests/scripts/tinygrad.sh            both
#   tests/scripts/tinygrad.sh --native   only natively: a perceptron and a convolutional network learn
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"

[ -e "$(foreign_dir tinygrad)" ] || scripts/setup --no-lab
ITERATIONS=5
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
with_progress "building the lab's CUDA" "$UVMD_ROOT/target/log/cargo.log" cargo build --locked --release -p libcuda
ln -s "$CARGO_TARGET_DIR/release/libcuda_lab.so" "$work/libcuda.so.1"
# train MODEL ITERATIONS: on plain memory of this machine.
train() {
  LD_LIBRARY_PATH=$work PYTHONPATH=$(foreign_dir tinygrad) DEV=CUDA:PTX PARALLEL=0 CACHEDB=$work/cache python3 lab/programs/train.py "$1" --iterations "$2"
}
learns() { python3 -c 'import json, sys; losses = [json.loads(line)["loss"] for line in sys.stdin]; sys.exit(not losses[-1] < losses[0])' <"$1"; }

train mlp $ITERATIONS >"$work/native"
learns "$work/native" || die "the perceptron does not learn: $(cat "$work/native")"
if [ "${1:-}" = --native ]; then
  train cnn 4 >"$work/cnn"
  learns "$work/cnn" || die "the convolutional network does not learn: $(cat "$work/cnn")"
  exit
fi
scripts/lab script tests/lab/programs/tinygrad.sh --userland python --gpu-mem-mib 8 --add lab/programs/train.py --add "$work/native" --timeout 900
