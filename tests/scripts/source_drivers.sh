#!/usr/bin/env bash
# A driver that no Debian suite has is skipped without its source, and named if the source lacks it.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export UVMD_CACHE=$work/cache
driver=$(awk '$1 == "driver" && $3 == "source" { print $2; exit }' "$UVMD_ROOT/lab/versions")

# expect STATUS TEXT COMMAND...
expect() {
  local status=0 said
  said=$("${@:3}" 2>&1) || status=$?
  [ "$status" = "$1" ] || die "${*:3} exited with $status instead of $1: $said"
  [[ $said == *"$2"* ]] || die "${*:3} does not say '$2': $said"
}
expect 77 "skipped: no source of the driver $driver" env -u UVMD_NVIDIA_SOURCE "$UVMD_ROOT/scripts/lab" run pingpong --driver "$driver"
git init -q "$work/clone"
sed -n '/^install_tagged_source() {/,/^}/p' "$UVMD_ROOT/scripts/setup" >"$work/function"
# shellcheck disable=SC1091 # a function of scripts/setup
source "$work/function"
export -f install_tagged_source die say publish
mkdir -p "$UVMD_CACHE" "$work/clone/kernel-open/nvidia-uvm"
expect 1 "has no tag $driver" env UVMD_NVIDIA_SOURCE="$work/clone" bash -c 'set -e; install_tagged_source "$@"' _ "$driver" "$UVMD_CACHE/driver-$driver"
touch "$work/clone/COPYING" "$work/clone/kernel-open/nvidia-uvm/uvm.c"
git -C "$work/clone" add -A
git -C "$work/clone" -c user.name=test -c user.email=test@localhost commit -qm one
git -C "$work/clone" tag "$driver"
# With a work tree, and without.
for clone in "$work/clone" "$work/clone/.git"; do
  rm -rf "$UVMD_CACHE"/driver-*
  expect 0 "" env UVMD_NVIDIA_SOURCE="$clone" bash -c 'set -e; install_tagged_source "$@"' _ "$driver" "$UVMD_CACHE/driver-$driver"
  [ -e "$UVMD_CACHE/driver-$driver/nvidia-uvm/uvm.c" ] || die "the source of $clone was not installed"
done
echo "drivers by source: skipped, refused and installed"
