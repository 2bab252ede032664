#!/usr/bin/env bash
# A training of tinygrad on the lab's CUDA: natively on plain memory, and in the lab on a card smaller than its memory, with the same losses.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"

[ -e "$(foreign_dir tinygrad)" ] || scripts/setup --no-lab
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
scripts/build --lab >/dev/null
ln -s "$CARGO_TARGET_DIR/release/libcuda_lab.so" "$work/libcuda.so.1"
LD_LIBRARY_PATH=$work PYTHONPATH=$(foreign_dir tinygrad) DEV=CUDA:PTX PARALLEL=0 CACHEDB=$work/cache \
  python3 lab/programs/train.py mlp --iterations 5 >"$work/native"
python3 -c 'import json, sys; losses = [json.loads(line)["loss"] for line in sys.stdin]; sys.exit(not losses[-1] < losses[0])' <"$work/native" ||
  die "the perceptron does not learn: $(cat "$work/native")"
scripts/lab script tests/lab/programs/tinygrad.sh --userland python --gpu-mem-mib 8 --add lab/programs/train.py --add "$work/native" --timeout 900
