#!/usr/bin/env bash
# Unit and integration tests, and a scenario, pass beside 16 busy processes: none depends on how fast the machine is.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"

BUSY=16
# What is built has nothing to show here.
cargo nextest run --locked --workspace --no-run
scripts/build --lab
busy=()
trap 'kill "${busy[@]}" 2>/dev/null || true' EXIT
for _ in $(seq "$BUSY"); do
  (while :; do :; done) &
  busy+=($!)
done
cargo nextest run --locked --workspace
scripts/lab run pingpong --once
for process in "${busy[@]}"; do
  kill -0 "$process" || die "process $process is not busy any more"
done
