#!/usr/bin/env bash
# Slurm and Podman start programs with the helper, in a whole Debian of the lab: tests/lab/userland/launchers.sh.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"

scripts/build --lab >/dev/null
package=$(mktemp -d)
trap 'rm -rf "$package"' EXIT
scripts/package --deb
cp target/package/*.deb "$package/"
scripts/lab script tests/lab/userland/launchers.sh --userland launchers --timeout 1200 --add target/release/uvm-workload --add target/release/libcuda_lab.so --add target/release/lab-runner \
  --add "$package"/*.deb
