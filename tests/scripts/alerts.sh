#!/usr/bin/env bash
# The alerts are valid, fire and resolve as their tests say, and have runbooks whose commands exist.
#
#   tests/scripts/alerts.sh [UVMCTL]
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"

uvmctl=${1:-}
if [ -z "$uvmctl" ]; then
  # --tests: with the features that the tests have, so that nothing is compiled twice.
  cargo build --locked --quiet --workspace --tests --bin uvmctl
  uvmctl=$CARGO_TARGET_DIR/debug/uvmctl
fi
PATH=$PATH:$UVMD_PROMETHEUS
command -v promtool >/dev/null || die "promtool is missing: run scripts/setup"

tests/scripts/promql.py --test
tests/scripts/alerts.py "$uvmctl"
promtool check rules dashboards/alerts/*.rules.yaml
promtool test rules dashboards/alerts/tests/*.yaml
