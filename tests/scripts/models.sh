#!/usr/bin/env bash
# Models of the memory that helper and uvmd share, and of the helper's gate: loom runs the interleavings of their threads.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"

# A folder of its own, as the flag is that of all crates. Release, as there are many interleavings.
export RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$CARGO_TARGET_DIR/loom
cargo test --locked --release -p call-ring --lib models
cargo test --locked --release -p hooks --test gate
