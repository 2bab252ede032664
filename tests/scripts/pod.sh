#!/usr/bin/env bash
# Runs the image with the settings of the DaemonSet, under runc and without a driver: it serves, reports, and writes to its own folders only.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"

if [ "$(id -u)" != 0 ]; then
  [ -z "${UVMD_TEST_REQUIRE_ROOT:-}" ] || die "this needs root"
  note "skipped: runc makes containers as root"
  exit 0
fi
for tool in umoci runc; do command -v "$tool" >/dev/null || { scripts/setup --image && break; }; done
# This installs the packages that pod.py needs.
scripts/kubernetes --check >/dev/null
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | sed -n 1p)
image=target/package/uvmd-$version.oci.tar
[ -e "$image" ] || scripts/image "$@"
work=$(mktemp -d)
name=uvmd-test-$$
finish() {
  runc delete --force "$name" 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT

mkdir "$work/oci"
tar -x -C "$work/oci" -f "$image"
sed -i "s#localhost/uvmd:$version#test#" "$work/oci/index.json"
umoci unpack --image "$work/oci:test" "$work/bundle"
read -ra liveness < <("$(manifests_dir)/bin/python" -B tests/scripts/pod.py "$work/bundle" "$work")
runc run --bundle "$work/bundle" "$name" >"$work/log" 2>&1 &
runtime=$!
inside() { runc exec "$name" "$@"; }
for _ in $(seq 300); do
  ! inside "${liveness[@]}" >"$work/status" 2>&1 || break
  kill -0 "$runtime" 2>/dev/null || break
  sleep 0.1
done
cat "$work/status"
grep -q "on node-of-the-pod" "$work/status" || { cat "$work/log" >&2 && die "uvmd does not respond, or not with the name of the node"; }
# The file of the ConfigMap is in effect, and the port of the readiness probe is open.
grep -q "serves metrics alone on http://0.0.0.0:9478/metrics" "$work/log" || { cat "$work/log" >&2 && die "metrics.listen is not that of the ConfigMap"; }
pid=$(runc state "$name" | python3 -c 'import json, sys; print(json.load(sys.stdin)["pid"])')
nsenter --net="/proc/$pid/ns/net" curl -sf http://127.0.0.1:9478/metrics >"$work/metrics"
grep -q '^uvmd_build_info{hostname="node-of-the-pod"' "$work/metrics" || die "the metrics have another name of the node"
[ -S "$work/run/uvmd.sock" ] || die "the node has no socket"
[ -e "$work/state/audit.jsonl" ] || die "the node has no state"
# If uvmd can see the node's first process, it enters that one's cgroup namespace. Otherwise it reports the degraded state.
foreign=0
[ "$(readlink "/proc/$pid/ns/cgroup")" = "cgroup:[4026531835]" ] || foreign=1
grep -q "^uvmd_degraded{.*reason=\"cgroup_namespace\"} $foreign$" "$work/metrics" || die "the state of the cgroup namespace is not $foreign"
[ "$foreign" = 0 ] || ! readlink /proc/1/ns/cgroup >/dev/null || die "uvmd did not enter the node's cgroup namespace"
runc kill "$name" TERM
wait "$runtime" || die "uvmd exited with $?"
grep -q stopped "$work/log" || die "uvmd did not stop in order"
echo "ok"
