#!/usr/bin/env bash
# Applies the manifests of deploy/kubernetes to a real API server: it tests defaults, validation and admission, which schemas do not cover.
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

# A second apply changes nothing: no field differs from the defaults that the server sets.
for overlay in observe act; do
  kubectl_as admin apply -k "deploy/kubernetes/overlays/$overlay"
  changed=$(kubectl_as admin apply -k "deploy/kubernetes/overlays/$overlay" | grep -v ' unchanged$' || true)
  [ -z "$changed" ] || die "a second apply of $overlay changes: $changed"
  # A pod of the DaemonSet is admitted, with its priority. No controller runs here that would create it.
  kubectl_as admin -n uvmd get daemonset uvmd -o json |
    python3 -c 'import json, sys
template = json.load(sys.stdin)["spec"]["template"]
metadata = {"name": sys.argv[1], "labels": template["metadata"]["labels"], "annotations": template["metadata"]["annotations"]}
json.dump({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}, sys.stdout)' "$overlay" >"$work/pod.json"
  kubectl_as admin -n uvmd apply -f "$work/pod.json"
  [ "$(kubectl_as admin -n uvmd get pod "$overlay" -o 'jsonpath={.spec.priority}')" = 2000001000 ] || die "the pod of $overlay has no priority"
done
# Server-side: the dashboards exceed the maximum size of the annotation of a client-side apply.
kubectl_as admin apply --server-side -f deploy/kubernetes/monitoring/dashboards.yaml
