#!/usr/bin/env bash
# uvmd plans the moves of a training by override, in the lab on a card smaller than its memory: the plan is confirmed by the link's bytes, or by the faults that pump
# promises to lower, which come back without it; harmful-plan is rolled back in its first block. The losses are the native run's.
#
#   tests/scripts/plan_policy.sh [--actuator NAME] [--touch-probe MIB] [POLICY...]
#
# auto-plan by default; several one after the other, in the same training. Of auto-live, which makes no plans, the script prints what came of it.
# With --touch-probe, launches are probed before the plan is made, with so much moved in an iteration; what they are found to access is held
# against the accesses in the log of the lab's CUDA, of a native run.
# With --actuator ioctl, uvmd carries plans out from outside: the script prints what came of the trial, whatever that is.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"

actuator=auto gpu_mib=32 probe_mib=''
while :; do
  case ${1:-} in
    --actuator) actuator=${2:?a name} && shift 2 ;;
    --touch-probe) probe_mib=${2:?a number of MiB} && shift 2 ;;
    *) break ;;
  esac
done
policies=${*:-auto-plan}
# Eight for the detector and the first plan, 32 of a trial, and some behind it.
iterations=$((20 + 50 * $(wc -w <<<"$policies")))
[ -z "$probe_mib" ] || iterations=$((iterations + 400))
tinygrad=$(foreign_dir tinygrad)
[ -e "$tinygrad" ] || scripts/setup --no-lab
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
scripts/build --lab >/dev/null
mkdir "$work/cuda" "$work/files"
ln -s "$CARGO_TARGET_DIR/release/libcuda_lab.so" "$work/cuda/libcuda.so.1"
LD_LIBRARY_PATH=$work/cuda PYTHONPATH=$tinygrad DEV=CUDA:PTX PARALLEL=0 CACHEDB=$work/cache JIT=2 \
  python3 lab/programs/train.py deep --managed --iterations $iterations >"$work/files/native"
echo "$policies" >"$work/files/policies"
echo "$actuator" >"$work/files/actuator"
options=''
if [ -n "$probe_mib" ]; then
  options="--set policy.touch_probe=true --set policy.touch_probe_bytes=${probe_mib}MiB --set log.filter=info,uvmd::followers=debug"
  CUDA_LAB_LOG=$work/accesses CUDA_LAB_LOG_ACCESSES=1 LD_LIBRARY_PATH=$work/cuda PYTHONPATH=$tinygrad DEV=CUDA:PTX PARALLEL=0 CACHEDB=$work/cache JIT=2 \
    python3 lab/programs/train.py deep --managed --iterations 6 >/dev/null
fi
echo "$options" >"$work/files/options"
# In the guest, the probes are compared by what it prints.
scripts/lab script tests/lab/programs/plan_policy.sh --userland python --gpu-mem-mib $gpu_mib --timeout $((4500 * $(wc -w <<<"$policies") + (${#probe_mib} > 0 ? 4500 : 0))) \
  --add lab/programs/train.py --add "$work/files/native" --add "$work/files/policies" --add "$work/files/actuator" \
  --add "$work/files/options" | tee "$work/printed"
[ -z "$probe_mib" ] || tests/scripts/touch_probe.py "$work"/accesses.* "$work/printed"
