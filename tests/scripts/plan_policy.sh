#!/usr/bin/env bash
# uvmd plans the moves of a training by override, in the lab on a card smaller than its memory: the plan is confirmed by the link's bytes, or by the faults that pump
# promises to lower, which come back without it; harmful-plan is rolled back in its first block. The losses are the native run's.
#
#   tests/scripts/plan_policy.sh [--program MODEL LAYERS GPU_MIB] [--touch-probe MIB] [POLICY...]
#
# tinygrad's deep on 32 MiB by default; with burn, Burn's network, whose LAYERS is the width of its hidden layer.
# auto-plan by default; several one after the other, in the same training. Of auto-live, which makes no plans, the script prints what came of it.
# With --touch-probe, launches are probed before the plan is made, with so much moved in an iteration; what they are found to access is held
# against the accesses in the log of the lab's CUDA, of a native run.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
# shellcheck source=tests/scripts/training.sh
source "$(dirname "$0")/training.sh"
cd "$UVMD_ROOT"

program=(deep) gpu_mib=32 probe_mib=''
while :; do
  case ${1:-} in
    --program) program_of "$2" "$3" && gpu_mib=$4 && shift 4 ;;
    --touch-probe) probe_mib=${2:?a number of MiB} && shift 2 ;;
    *) break ;;
  esac
done
policies=${*:-auto-plan}
# Eight for the detector and the first plan, 32 of a trial, and some behind it.
iterations=$((20 + 50 * $(wc -w <<<"$policies")))
[ -z "$probe_mib" ] || iterations=$((iterations + 400))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prepare_training
train $iterations >"$work/files/native"
# In the guest, it goes on until it is ended.
add_training 1000000
echo "$policies" >"$work/files/policies"
options=''
if [ -n "$probe_mib" ]; then
  options="--set policy.touch_probe=true --set policy.touch_probe_bytes=${probe_mib}MiB --set log.filter=info,followers=debug"
  train 6 CUDA_LAB_LOG="$work/accesses" CUDA_LAB_LOG_ACCESSES=1 >/dev/null
fi
echo "$options" >"$work/files/options"
for file in "$work"/files/*; do added+=(--add "$file"); done
# In the guest, the probes are compared by what it prints.
scripts/lab script tests/lab/programs/plan_policy.sh --userland python --gpu-mem-mib "$gpu_mib" --timeout $((4500 * $(wc -w <<<"$policies") + (${#probe_mib} > 0 ? 4500 : 0))) \
  "${added[@]}" 2>&1 | tee "$work/printed"
[ -z "$probe_mib" ] || tests/scripts/touch_probe.py "$work"/accesses.* "$work/printed"
