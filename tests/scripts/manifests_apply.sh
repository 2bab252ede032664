#!/usr/bin/env bash
# A real API server takes the manifests of deploy/kubernetes: defaults, validation and admission, as schemas alone do not have them.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"
if [ ! -e tests/kubernetes/apiserver.sh ]; then
  note "skipped: this source has no API server for tests"
  exit 0
fi
# shellcheck disable=SC1091 # it may be missing
source tests/kubernetes/apiserver.sh
# shellcheck disable=SC2034 # of apiserver.sh
APISERVER_ACCOUNTS=() APISERVER_OPTIONS=(--allow-privileged=true)
work=$(mktemp -d)
finish() {
  apiserver_stop
  rm -rf "$work"
}
trap finish EXIT
apiserver_start "$work/apiserver"

# The same again is no change: nothing of it is a default that the server fills in otherwise.
for overlay in observe act; do
  kubectl_as admin apply -k "deploy/kubernetes/overlays/$overlay"
  changed=$(kubectl_as admin apply -k "deploy/kubernetes/overlays/$overlay" | grep -v ' unchanged$' || true)
  [ -z "$changed" ] || die "a second apply of $overlay changes: $changed"
  # A pod of it is admitted, with its priority. There is no controller that would make one.
  kubectl_as admin -n uvmd get daemonset uvmd -o json |
    python3 -c 'import json, sys
template = json.load(sys.stdin)["spec"]["template"]
metadata = {"name": sys.argv[1], "labels": template["metadata"]["labels"], "annotations": template["metadata"]["annotations"]}
json.dump({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}, sys.stdout)' "$overlay" >"$work/pod.json"
  kubectl_as admin -n uvmd apply -f "$work/pod.json"
  [ "$(kubectl_as admin -n uvmd get pod "$overlay" -o 'jsonpath={.spec.priority}')" = 2000001000 ] || die "the pod of $overlay has no priority"
done
# The dashboards are larger than the annotation of a client-side apply may be.
kubectl_as admin apply --server-side -f deploy/kubernetes/monitoring/dashboards.yaml
