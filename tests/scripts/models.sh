#!/usr/bin/env bash
# Models of the memory that helper and uvmd share, and of the helper's gate: loom runs the interleavings of their threads.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"

# A folder of its own, as the flag is that of all crates. Release, as there are many interleavings.
export RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$CARGO_TARGET_DIR/loom
for models in "call-ring --lib" "hooks --test gate"; do
  # shellcheck disable=SC2086 # words
  cargo nextest run --locked --release --no-tests fail -p $models
done
