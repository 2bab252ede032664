#!/usr/bin/env bash
# The helper on a GPU, with NVIDIA's driver: what it records of programs, that they end as without it, and what it costs.
#
#   tests/scripts/gpu_helper.sh --bundle DIR   build into DIR what it takes, to be carried to a node with a GPU
#   tests/scripts/gpu_helper.sh DIR            run it there; prints a report, and exits with 1 if something differed
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"

if [ "${1:-}" = --bundle ]; then
  to=${2:?which folder?}
  scripts/gpu-check --bundle "$to"
  scripts/build --lab >/dev/null
  remap_paths
  cargo build --locked --release --quiet -p helper-tools
  for tool in record follow; do
    cp "target/release/$tool" "$to/"
    strip "$to/$tool"
  done
  tinygrad=$(foreign_dir tinygrad)
  [ -e "$tinygrad" ] || scripts/setup --no-lab
  rm -rf "$to/tinygrad"
  cp -r "$tinygrad" "$to/tinygrad"
  cuda=$(mktemp -d)
  trap 'rm -rf "$cuda"' EXIT
  ln -s "$UVMD_ROOT/target/release/libcuda_lab.so" "$cuda/libcuda.so.1"
  tests/helper/build "$to/programs" "$cuda"
  # The harm of a node without them.
  cp -L /bin/busybox /lib/ld-musl-x86_64.so.1 "$to/programs/"
  exit
fi
bundle=$(realpath "${1:?which folder?}")
helper=$bundle/libuvmd_helper.so programs=$bundle/programs work=$(mktemp -d) failures=0
trap 'rm -rf "$work"' EXIT
export PATH=$PATH:$programs CUBLAS_WORKSPACE_CONFIG=:4096:8
[ -e /lib/ld-musl-x86_64.so.1 ] || cp "$programs/ld-musl-x86_64.so.1" /lib/

differs() {
  echo "DIFFERENT: $1"
  failures=$((failures + 1))
}
# is_recorded WHAT EXIT PROGRAM...: it ends so with the helper, nothing is missing of what is recorded, and how often each call is there.
is_recorded() {
  local what=$1 expected=$2 code=0
  shift 2
  "$bundle/record" "$helper:$programs/hold.so" "$work/calls" "$@" >"$work/out" 2>"$work/err" || code=$?
  [ "$code" = "$expected" ] || differs "$what: exit code $code"
  grep -q 'dropped: 0, late: 0, unrecorded: 0, unknown: 0, invalid: 0' "$work/err" || differs "$what: $(tail -n 1 "$work/err")"
  echo "$what: $(grep -o '"op":"[a-z_]*"' "$work/calls" | sort | uniq -c | awk '{ gsub(/"op":|"/, "", $2); printf "%s %s, ", $1, $2 }')exit code $code"
}
# is_same WHAT EXIT PROGRAM...: and it prints what it prints without the helper.
is_same() {
  "${@:3}" >"$work/alone" 2>"$work/alone.err" || true
  is_recorded "$@"
  cmp -s "$work/alone" "$work/out" || differs "$1: $(tail -n 1 "$work/alone") alone, $(tail -n 1 "$work/out") with it"
}
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
for workload in $("$bundle/uvm-workload" --list | awk '{ print $1 }'); do
  # It verifies its data, and prints times.
  is_recorded "workload $workload" 0 "$bundle/uvm-workload" --mib 16 --iterations 3 "$workload"
done
for what in run threads graph unload fork; do is_same "program, $what" 5 "$programs/program" "$what"; done
for how in plain process reopened; do is_same "program that finds the driver by itself, $how" 0 "$programs/handles" "$how"; done
if python3 -c 'import torch' 2>/dev/null; then
  for mode in eager graph compile; do
    is_same "PyTorch, $mode" 0 python3 tests/helper/train.py $mode
    echo "  an iteration: $(tail -n 1 "$work/alone.err") alone, $(grep ' ms$' "$work/err" | tail -n 1) recorded"
  done
  is_recorded "PyTorch, managed by the helper" 0 python3 tests/helper/train.py eager --allocator "$helper"
  scripts/gpu-check --torch --bin-dir "$bundle" || differs "PyTorch, managed by the helper"
fi
for blocks in 4 1024; do
  for _ in 1 2 3 4 5; do
    echo "launch in ns, $blocks blocks: $("$programs/gpu_cost" $blocks) alone, $("$bundle/record" --off "$helper:$programs/hold.so" "$work/calls" "$programs/gpu_cost" $blocks 2>/dev/null) passing through, $("$bundle/record" "$helper:$programs/hold.so" "$work/calls" "$programs/gpu_cost" $blocks 2>/dev/null) recorded"
  done
done
cuda=$(dirname "$(ldconfig -p | awk '/libcuda\.so\.1 / { print $NF; exit }')")
tests/scripts/helper_acts.py "$helper" "$bundle/record" "$cuda" "$programs" --nvidia "$bundle/gpu-check" || failures=$((failures + 1))
for planner in foresight autoswap appobmem g10; do
  tests/scripts/plans.py "$helper" "$bundle/follow" "$cuda" "$bundle/tinygrad" --policies $planner --nvidia || failures=$((failures + 1))
done
tests/scripts/helper_harm.py "$helper" "$bundle/record" "$cuda" "$programs" --kills 50 --nvidia || failures=$((failures + 1))
[ "$failures" = 0 ] || die "$failures differences"
