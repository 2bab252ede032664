#!/usr/bin/env bash
# Records the runs of offline/trace-sources/tests/samples/runs anew: programs on the lab's CUDA, natively, with the helper in them.
#
#   tests/scripts/streams.sh [NAME]...   all of them, or those of these names
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"

numba=$(foreign_dir numba) burn=$(foreign_dir burn) tinygrad=$(foreign_dir tinygrad)
if [ ! -e "$numba/complete" ] || [ ! -e "$burn" ] || [ ! -e "$tinygrad" ]; then scripts/setup --no-lab --foreign; fi
scripts/build --lab >/dev/null
remap_paths
cargo build --locked --release -p helper-tools
helper=$UVMD_ROOT/target/helper/libuvmd_helper.so record=$UVMD_ROOT/target/release/record
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ln -s "$UVMD_ROOT/target/release/libcuda_lab.so" "$work/libcuda.so.1"
ln -s libcuda.so.1 "$work/libcuda.so"

names=" $* "
# recorded NAME [VARIABLE=VALUE]... PROGRAM...: times begin at 0, and addresses are left out, unless the name ends in -addresses.
recorded() {
  local name=$1 variables=()
  shift
  [ "$names" = "  " ] || [[ $names == *" $name "* ]] || return 0
  while [[ $1 == *=* ]]; do variables+=("$1") && shift; done
  say "$name"
  env LD_LIBRARY_PATH="$work" PARALLEL=0 "${variables[@]}" "$record" "$helper" "$work/calls" "$@" >"$work/out" 2>&1 ||
    die "$name failed: $(tail "$work/out")"
  grep -q 'dropped: 0, late: 0, unrecorded: 0, unknown: 0, invalid: 0' "$work/out" || die "$name: $(tail -n 1 "$work/out")"
  python3 - "$work/calls.trace" "offline/trace-sources/tests/samples/runs/$name.json.gz" <<'END'
import gzip, json, sys
with open(sys.argv[1], encoding="utf-8") as text:
    run = json.load(text)
begin = run["ops"][0]["time_ns"]
for op in run["ops"]:
    op["time_ns"] -= begin
if not sys.argv[2].endswith("-addresses.json.gz"):
    for block in run["blocks"]:
        del block["address"]
with open(sys.argv[2], "wb") as file, gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=9, mtime=0) as packed:
    packed.write(json.dumps(run, separators=(",", ":")).encode())
END
}

tinygrad() { recorded "$1" PYTHONPATH="$tinygrad" DEV=CUDA:PTX CACHEDB="$work/cache" "${@:2}"; }
train=(python3 lab/programs/train.py)
tinygrad mlp "${train[@]}" mlp --iterations 12
tinygrad cnn "${train[@]}" cnn --iterations 12
tinygrad mlp-validated "${train[@]}" mlp --iterations 32 --validate-every 12
tinygrad cnn-validated "${train[@]}" cnn --iterations 32 --validate-every 12
tinygrad mlp-batch "${train[@]}" mlp --iterations 24 --batch-change-at 12
tinygrad cnn-batch "${train[@]}" cnn --iterations 24 --batch-change-at 12
# Without graphs, pools and plans of memory: each tensor is a block.
tinygrad mlp-eager JIT=0 LRU=0 NO_MEMORY_PLANNER=1 "${train[@]}" mlp --iterations 12
tinygrad cnn-eager JIT=0 LRU=0 NO_MEMORY_PLANNER=1 "${train[@]}" cnn --iterations 12
# Larger than a GPU of 32 MiB, for plans: kernels are launched one by one.
tinygrad deep JIT=2 "${train[@]}" deep --managed --iterations 12
# With addresses, for the simulator beside the lab.
tinygrad deep-addresses JIT=2 "${train[@]}" deep --managed --iterations 10
tinygrad deep-8-addresses JIT=2 "${train[@]}" deep --layers 8 --managed --iterations 10
tinygrad transformer-2-addresses JIT=2 "${train[@]}" transformer --layers 2 --managed --iterations 10
tinygrad alexnet-8-addresses JIT=2 "${train[@]}" alexnet --layers 8 --managed --iterations 10
recorded numba "$numba/bin/python" lab/programs/kernels.py --rounds 12
recorded numba-passes "$numba/bin/python" lab/programs/kernels.py --rounds 12 --passes 20
recorded burn CUDA_PATH="$burn/site/nvidia/cuda_runtime" LD_LIBRARY_PATH="$work:$burn/site/nvidia/cuda_nvrtc/lib" "$burn/bin/burn-train" 10
