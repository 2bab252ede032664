#!/usr/bin/env bash
# Plans that are made live. Natively, on plain memory, the moves are those of the plan; in the lab, on a card smaller than a training, the link carries less.
#
#   tests/scripts/plans.sh          deep, on 32 MiB, by foresight
#   tests/scripts/plans.sh --cell MODEL LAYERS GPU_MIB FOLDER [POLICY,...]
#                                   several policies in one boot, by default all that make plans; leaves FOLDER/MODEL-GPU_MIB.json. The
#                                   MODEL burn is Burn's network, and LAYERS the width of its hidden layer, or - for its own
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
# shellcheck source=tests/scripts/training.sh
source "$(dirname "$0")/training.sh"
cd "$UVMD_ROOT"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cargo build --locked --release --quiet -p helper-tools -p evaluation
follow=$CARGO_TARGET_DIR/release/follow

# operations LOG: launches, copies and fills of the last iteration, which ends as the program reads the loss.
operations() { awk '/"op":"(launch|memcpy|memset)"/ { count++ } /"op":"sync"/ { last = count; count = 0 } END { print last }' "$1"; }

# in_the_lab ITERATIONS OPTION...: with these options of follow. What it prints is in $work/report, the bound in $work/bound.
in_the_lab() {
  local iterations=$1
  shift
  # What a full GPU holds of managed memory: docs/measurements/residency.md has 62 of 64 MiB.
  local capacity_mib=$((gpu_mib - 2))
  train 7 CUDA_LAB_LOG="$work/log" CUDA_LAB_LOG_ACCESSES=1 >/dev/null
  "$CARGO_TARGET_DIR/release/evaluation" bound "$work"/log.* "$capacity_mib" "$(operations "$work"/log.*)" 3 >"$work/bound"
  train "$iterations" >"$work/files/native"
  echo "--gpu-mib $gpu_mib --capacity-mib $capacity_mib $*" >"$work/files/follow_options"
  added=(--add "$follow")
  add_training "$iterations"
  local file
  for file in "$work"/files/*; do added+=(--add "$file"); done
  scripts/lab script tests/lab/programs/plans.sh --userland python --gpu-mem-mib "$gpu_mib" --timeout 3600 "${added[@]}" 2>&1 | tee "$work/report" >&2
}

if [ "${1:-}" = --cell ]; then
  model=$2 gpu_mib=$4 folder=$5
  program_of "$model" "$3"
  prepare_training
  IFS=, read -ra all <<<"${6:-foresight,autoswap,appobmem,g10,pump}"
  # Seven for the detector, two for the driver, and for each policy one without the plan, six with it, and five behind it.
  in_the_lab $((10 + 12 * ${#all[@]})) --policies "$(IFS=, && echo "${all[*]}")" --plan-after 2 --off-after 6 --pause 4
  tests/scripts/plans_table.py cell "$work/report" "$work/bound" "${program[*]}" "$gpu_mib" >"$folder/$model-$gpu_mib.json"
else
  program=(deep) gpu_mib=32
  prepare_training
  say "natively"
  tests/scripts/plans.py target/helper/libuvmd_helper.so "$follow" "$work/cuda" "$tinygrad" --gpu-mib $gpu_mib
  in_the_lab 13 --off-after 2
  tests/scripts/plans_report.py "$work/report" "$work/bound"
fi
