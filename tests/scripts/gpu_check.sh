#!/usr/bin/env bash
# The bundle of scripts/gpu-check works by itself, and says so where there is no GPU.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# No GPU, also where there is one.
export CUDA_VISIBLE_DEVICES=

"$UVMD_ROOT/scripts/gpu-check" --bundle "$work/bundle"
grep -q 'needs x86-64 Linux and GLIBC_' "$work/bundle/README" || die "the bundle does not say what it needs"
status=0
"$UVMD_ROOT/scripts/gpu-check" --bin-dir "$work/bundle" --out "$work/out" >"$work/told" || status=$?
[ "$status" = 3 ] || die "without a GPU it exits with $status, and not with 3"
grep -q '^| GPU | not checked |' "$work/told" || die "it does not say that there is no GPU"
for report in report.md report.json; do [ -s "$work/out/$report" ] || die "there is no $report"; done
status=0
"$UVMD_ROOT/scripts/gpu-check" --bin-dir "$work/nothing" 2>"$work/told" || status=$?
if [ "$status" != 1 ] || ! grep -q 'there is no gpu-check in' "$work/told"; then die "a folder without a bundle is not told"; fi
