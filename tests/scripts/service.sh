#!/usr/bin/env bash
# Install two builds of the package in a whole Debian of the lab, one after the other: tests/lab/userland/service.sh.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"

scripts/build --lab >/dev/null
packages=$(mktemp -d) files=(--add target/release/uvm-workload --add target/release/libcuda_lab.so)
trap 'rm -rf "$packages"' EXIT
for revision in 1 2; do
  scripts/package --deb --revision "$revision"
  cp target/package/*.deb "$packages/"
done
for package in "$packages"/*.deb; do files+=(--add "$package"); done
scripts/lab script tests/lab/userland/service.sh --userland debian --timeout 1500 "${files[@]}"
