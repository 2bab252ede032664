#!/usr/bin/env bash
# uvmd's package beside Prometheus and Alertmanager, in a whole Debian of the lab.
#
#   tests/scripts/monitoring.sh          from the package to an alert about a pod that thrashes
#   tests/scripts/monitoring.sh --all    each alert fires, and each panel of the dashboards has a value in its state and none without it
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
scripts/package --deb
cp target/package/*.deb "$work/"
files=(--add tests/lab/userland/monitoring)
for package in "$work"/*.deb; do files+=(--add "$package"); done
if [ "${1:-}" != --all ]; then
  scripts/lab script tests/lab/userland/alert.sh --userland monitoring --timeout 900 "${files[@]}"
  exit
fi
# The pod and the ranges are those of tests/lab/userland/monitoring.
tests/scripts/panels.py node=lab job=uvmd gpu=.+ kind=pod owner=b6a16766-05ee-446a-8ee5-ff96a817f47c __rate_interval=15s __range=10m >"$work/panels.tsv"
files+=(--add tests/lab/userland/stand-ins.prom --add "$work/panels.tsv" --add lab/compare/streaming.toml)
scripts/lab script tests/lab/userland/alerts.sh --userland monitoring --timeout 4500 "${files[@]}"
