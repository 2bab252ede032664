#!/usr/bin/env bash
# uvmd-fleet with a real API server: pod names and policies, RBAC, and interruptions.
#
#   tests/scripts/kubernetes.sh
#
# scripts/setup --kubernetes builds the API server once. kubectl has to be installed. No virtual machine.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
# shellcheck source=tests/kubernetes/apiserver.sh
source "$UVMD_ROOT/tests/kubernetes/apiserver.sh"

[ -x "$(kube_apiserver_dir)/kube-apiserver" ] || "$UVMD_ROOT/scripts/setup" --kubernetes
command -v kubectl >/dev/null || die "kubectl is not installed"
fleet=$UVMD_ROOT/target/debug/uvmd-fleet
(cd "$UVMD_ROOT" && cargo build --locked -q -p fleet -p uvmd)
work=$(mktemp -d)
# Accounts for which the API server has tokens.
APISERVER_ACCOUNTS=(uvmd/uvmd-fleet ml/user other/user)
# No watch cache, so that a compaction interrupts watches.
APISERVER_OPTIONS=(--watch-cache=false)
started=()
finish() {
  for pid in "${started[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  apiserver_stop
  [ "${status:-1}" = 0 ] || tail -n 20 "$work"/*.log "$work"/apiserver/apiserver.log >&2 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT

# --- expectations ----------------------------------------------------------------------------------------------------------

ok() { echo "ok: $*"; }

# eventually DESCRIPTION COMMAND...: waits until the command succeeds, for 60 s at most.
eventually() {
  local what=$1 deadline=$((SECONDS + 60))
  shift
  until "$@" 2>/dev/null; do
    [ $SECONDS -lt $deadline ] || die "not within 60 s: $what"
    sleep 0.1
  done
  ok "$what"
}

# names EXPRESSION: evaluates Python with `f`, the file of names, and `pods`, its pods by namespace/name.
names() {
  python3 -c 'import json, sys
f = json.load(open(sys.argv[1]))
pods = {p["namespace"] + "/" + p["name"]: p for p in f["pods"]}
sys.exit(not eval(sys.argv[2]))' "$work/run/owners.json" "$1"
}

refused() {
  local what=$1 words=$2 output
  shift 2
  if output=$("$@" 2>&1); then die "accepted: $what"; fi
  [[ $output == *"$words"* ]] || die "$what: not refused with $words: $output"
  ok "refused: $what ($words)"
}

# --- objects -------------------------------------------------------------------------------------------------------------------

# pod NAMESPACE NAME NODE [LABEL...]
pod() {
  local namespace=$1 name=$2 node=$3 label
  shift 3
  printf -- '---\napiVersion: v1\nkind: Pod\nmetadata:\n  namespace: %s\n  name: %s\n  labels:\n    app: test\n' "$namespace" "$name"
  for label in "$@"; do printf '    %s\n' "$label"; done
  printf 'spec:\n  nodeName: %s\n  containers: [{name: train, image: none}]\n' "$node"
}

delete_pod() { kubectl_as admin delete pod -n "$1" "$2" --grace-period=0 --force >/dev/null 2>&1; }

# start NODE: starts uvmd-fleet with its own account.
start() {
  NODE_NAME=$1 KUBECONFIG=$(apiserver_kubeconfig uvmd/uvmd-fleet) "$fleet" --names "$work/run/owners.json" \
    --label team --retention 1h --heartbeat 2s --overrides "$work/run/overrides.json" --gpu-model "NVIDIA H200" >>"$work/fleet.log" 2>&1 &
  fleet_pid=$!
  started+=("$fleet_pid")
}

apiserver_start "$work/apiserver"
ok "the API server is ready"
for namespace in uvmd ml other; do kubectl_as admin create namespace "$namespace" >/dev/null; done
kubectl_as admin apply -f "$UVMD_ROOT/deploy/kubernetes/base/rbac.yaml" >/dev/null
kubectl_as admin apply -f "$UVMD_ROOT/deploy/kubernetes/base/crds.yaml" >/dev/null
for plural in uvmpolicies clusteruvmpolicies; do
  kubectl_as admin wait --for condition=Established --timeout 60s "crd/$plural.uvmd.io" >/dev/null
done
ok "the custom resource definitions are accepted"
[ "$(kubectl_as admin get crd uvmpolicies.uvmd.io -o "jsonpath={.status.conditions[?(@.type=='NonStructuralSchema')].status}")" != True ] || die "the schema is not structural"

# --- permissions -----------------------------------------------------------------------------------------------------------------

may() { [ "$(kubectl_as uvmd/uvmd-fleet auth can-i "$@" 2>/dev/null)" = yes ]; }
for verb in get list watch; do may "$verb" pods -A || die "the fleet's account may not $verb pods"; done
for verb in create update patch delete; do ! may "$verb" pods -A || die "the fleet's account may $verb pods"; done
for object in secrets configmaps nodes serviceaccounts; do ! may list "$object" -A || die "the fleet's account may list $object"; done
! may create pods/exec -A || die "the fleet's account may enter pods"
for verb in get list watch; do may "$verb" uvmpolicies.uvmd.io -A || die "the fleet's account may not $verb policies"; done
for verb in create update patch delete; do ! may "$verb" uvmpolicies.uvmd.io -A || die "the fleet's account may $verb policies"; done
may patch uvmpolicies.uvmd.io --subresource status -A || die "the fleet's account may not write the status of policies"
ok "the fleet's account may read pods and policies, and no secrets"

# --- names -----------------------------------------------------------------------------------------------------------------------

{ pod ml llm-0 gpu-1 'team: nlp' 'secret: x' && pod ml llm-1 gpu-2 && pod other web gpu-1; } | kubectl_as admin apply -f - >/dev/null
start gpu-1
eventually "pods of the node alone have names" names 'set(pods) == {"ml/llm-0", "other/web"}'
names 'pods["ml/llm-0"]["labels"] == {"team": "nlp"}' || die "other labels than the allowed one"
ok "of labels, the allowed one is passed on"
uid=$(kubectl_as admin get pod -n ml llm-0 -o 'jsonpath={.metadata.uid}')
names "pods['ml/llm-0']['uid'] == '$uid'" || die "another UID"
kubectl_as admin label pod -n ml llm-0 team=vision --overwrite >/dev/null
eventually "a changed label follows" names 'pods["ml/llm-0"]["labels"]["team"] == "vision"'
id=$(printf 'c%.0s' {1..64})
kubectl_as admin patch pod -n ml llm-0 --subresource status --type merge \
  -p "{\"status\": {\"containerStatuses\": [{\"name\": \"train\", \"image\": \"none\", \"imageID\": \"\", \"ready\": true, \"restartCount\": 0, \"containerID\": \"containerd://$id\"}]}}" >/dev/null
eventually "a container that starts has its name" names "pods['ml/llm-0']['containers'] == {'$id': 'train'}"
pod ml llm-2 gpu-1 | kubectl_as admin apply -f - >/dev/null
eventually "a new pod has names" names '"ml/llm-2" in pods'
delete_pod other web
eventually "a deleted pod keeps its names, as one that is gone" names 'pods["other/web"]["deleted_at"] is not None'

# --- policies ----------------------------------------------------------------------------------------------------------------------

# policy KIND NAME NAMESPACE SPEC: prints the object in JSON.
policy() {
  local namespace=${3:+, \"namespace\": \"$3\"}
  printf '{"apiVersion": "uvmd.io/v1alpha1", "kind": "%s", "metadata": {"name": "%s"%b}, "spec": %s}' "$1" "$2" "$namespace" "$4"
}
# Without kubectl's own validation, so that the API server refuses.
apply_policy() { policy "${@:2}" | kubectl_as "$1" apply --validate=false -f -; }
# overrides EXPRESSION: evaluates Python with `o`, the overrides, and `uids`, those of existing pods by namespace/name.
overrides() {
  python3 -c 'import json, sys
o = json.load(open(sys.argv[1]))
uids = {p["namespace"] + "/" + p["name"]: p["uid"] for p in json.load(open(sys.argv[2]))["pods"] if not p["deleted_at"]}
sys.exit(not eval(sys.argv[3]))' "$work/run/overrides.json" "$work/run/owners.json" "$1"
}
status_of() { kubectl_as admin get "$1" "$2" ${3:+-n "$3"} -o "jsonpath={.status.nodes[0].$4}"; }
# shellcheck disable=SC2053 # a pattern
has_status() { [[ $(status_of "${@:1:4}") == $5 ]]; }

kubectl_as admin create rolebinding team -n ml --clusterrole uvmd-policy-editor --serviceaccount ml:user >/dev/null
refused "an unknown mode" spec.mode apply_policy admin UvmPolicy bad ml '{"mode": "on"}'
refused "an unknown policy" spec.policy apply_policy admin UvmPolicy bad ml '{"mode": "act", "policy": "harmful"}'
refused "a priority out of range" spec.priority apply_policy admin UvmPolicy bad ml '{"mode": "act", "priority": 2000}'
refused "a negative budget" spec.budget.bytes apply_policy admin UvmPolicy bad ml '{"mode": "act", "budget": {"bytes": -1}}'
refused "too many containers" spec.selector.containers apply_policy admin UvmPolicy bad ml \
  "{\"mode\": \"act\", \"selector\": {\"containers\": $(python3 -c 'import json; print(json.dumps([f"c{n}" for n in range(33)]))')}}"
refused "too many labels" spec.selector.matchLabels apply_policy admin UvmPolicy bad ml \
  "{\"mode\": \"act\", \"selector\": {\"matchLabels\": $(python3 -c 'import json; print(json.dumps({f"l{n}": "" for n in range(65)}))')}}"
refused "a policy without a mode" spec.mode apply_policy admin UvmPolicy bad ml '{}'
refused "an allowance without a mode" spec.allow.mode apply_policy admin ClusterUvmPolicy bad "" '{"allow": {}}'
refused "a team in another namespace" forbidden apply_policy ml/user UvmPolicy mine other '{"mode": "act"}'
refused "a team for the cluster" forbidden apply_policy ml/user ClusterUvmPolicy mine "" '{"directive": {"mode": "act"}}'

{ pod ml train gpu-1 'app2: llm' && pod other train gpu-1; } | kubectl_as admin apply -f - >/dev/null
apply_policy ml/user UvmPolicy mine ml '{"mode": "act", "policy": "cycle", "selector": {"matchLabels": {"app2": "llm"}}}' >/dev/null
eventually "a team's policy reaches its pods, and observes alone without a grant" \
  overrides '[(each["match"]["pod"], each["mode"], each["policy"]) for each in o] == [(uids["ml/train"], "observe", "cycle")]'
eventually "its status reports the rejected field" has_status uvmpolicy mine ml 'rejected[0]' 'spec.mode: act is not allowed*'
apply_policy admin ClusterUvmPolicy grant "" '{"namespaces": ["ml"], "allow": {"mode": "act", "budget": {"bytesPerSecond": 1000}}}' >/dev/null
eventually "with a grant it acts, within the budget" \
  overrides '[(each["mode"], each["budget"]["bytes_per_second"]) for each in o] == [("act", 1000)]'
eventually "its status counts the pods" has_status uvmpolicy mine ml selectedPods 1
eventually "nothing is rejected any more" has_status uvmpolicy mine ml rejected '\[\]'
kubectl_as ml/user get uvmpolicy -n ml | grep -Eq '^mine +act +cycle' || die "kubectl get shows neither mode nor policy"
ok "kubectl get shows mode and policy"
kubectl_as admin annotate pod -n ml train uvmd.io/mode=observe >/dev/null
eventually "a pod opts out" overrides '[each["mode"] for each in o] == ["observe"]'
kubectl_as admin annotate pod -n ml train uvmd.io/mode=act --overwrite >/dev/null
eventually "no pod opts in" overrides '[(each["mode"], each["policy"]) for each in o] == [("act", "cycle")]'
apply_policy admin ClusterUvmPolicy base "" '{"directive": {"mode": "shadow", "priority": 5, "expiresAt": "2099-01-01T00:00:00Z"}, "selector": {"gpuModels": ["NVIDIA H200"]}}' >/dev/null
eventually "a policy of the cluster with a higher priority comes first" \
  overrides 'len(o) == len(uids) == 4 and {each["mode"] for each in o} == {"shadow"}'
eventually "the other names it" has_status uvmpolicy mine ml 'conflicts[0]' 'ClusterUvmPolicy base'
kubectl_as admin delete clusteruvmpolicy base >/dev/null
eventually "without it the team's policy is back" overrides '[each["mode"] for each in o] == ["act"]'

# --- uvmd ----------------------------------------------------------------------------------------------------------------------------

# Without a driver it counts nothing, and reads both files all the same.
"$UVMD_ROOT/target/debug/uvmd" --config /dev/null --listen 127.0.0.1:0 --set socket.enabled=false --set "policy.state_dir=$work/state" \
  --set "owners.names=$work/run/owners.json" --set "policy.fleet_overrides_file=$work/run/overrides.json" >"$work/uvmd.log" 2>&1 &
started+=("$!")
# uvmd_has OVERRIDES: whether uvmd has this number of overrides in effect, and accepts both files.
uvmd_has() {
  local url
  url=$(sed -n 's/.* serves on //p' "$work/uvmd.log")
  curl -fsS -m 5 "$url/api/v1/policy" | grep -q "\"overrides\":$1,\"file_error\":null" &&
    curl -fsS -m 5 "$url/metrics" | grep -q '^uvmd_warning_active{.*warning="owner_names_unavailable"} 0'
}
eventually "uvmd has the override in effect, and the names" uvmd_has 1
policies=$(sha256sum <"$work/run/overrides.json")

# --- interruptions ------------------------------------------------------------------------------------------------------------------

read -r generation contact < <(python3 -c 'import json,sys; f=json.load(open(sys.argv[1])); print(f["generation"], f["contacted_at"])' "$work/run/owners.json")
apiserver_kill
written() { python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["written_at"])' "$work/run/owners.json"; }
before=$(written)
beats() { [ "$(written)" != "$before" ]; }
eventually "it still writes without the API server" beats
names "f['generation'] == $generation and len(pods) == 5" || die "names changed without the API server"
[ "$(sha256sum <"$work/run/overrides.json")" = "$policies" ] || die "overrides changed without the API server"
ok "names and overrides stay as they are without the API server"
apiserver_resume
eventually "it is in contact again" names "f['contacted_at'] > '$contact'"
names "f['generation'] == $generation" || die "the interruption changed names"
ok "an interruption changes nothing"

apiserver_kill
apiserver_resume
pod ml llm-3 gpu-1 | kubectl_as admin apply -f - >/dev/null
delete_pod ml llm-2
apiserver_compact
eventually "changes during the interruption follow, also after a compaction (410 Gone)" \
  names '"ml/llm-3" in pods and pods["ml/llm-2"]["deleted_at"] is not None and pods["ml/llm-0"]["deleted_at"] is None'

kill -TERM "$fleet_pid"
wait "$fleet_pid" || die "uvmd-fleet did not exit cleanly"
delete_pod ml llm-3
has_status uvmpolicy mine ml node gpu-1 || die "the status has no entry of the node"
apply_policy ml/user UvmPolicy mine ml '{"mode": "act", "selector": {"matchLabels": {"app2": "none"}}}' >/dev/null
generation=$(python3 -c 'import json,sys; print(json.load(open(sys.argv[1]))["generation"])' "$work/run/owners.json")
start gpu-1
eventually "a restart keeps names, and detects deleted pods" names "pods['ml/llm-3']['deleted_at'] is not None and f['generation'] > $generation and 'other/web' in pods"
eventually "uvmd has no override of a policy that matches no pod" uvmd_has 0
eventually "a restart removes the entry of a policy that no longer matches a pod" has_status uvmpolicy mine ml node ''

# --- a large cluster ------------------------------------------------------------------------------------------------------------------

# In parallel: kubectl would take minutes.
python3 - "$APISERVER_PORT" "$APISERVER/cert/ca.crt" <<'PY'
import http.client, json, ssl, sys
from concurrent.futures import ThreadPoolExecutor
port, context = int(sys.argv[1]), ssl.create_default_context(cafile=sys.argv[2])
def create(numbers):
    connection = http.client.HTTPSConnection("127.0.0.1", port, context=context)
    for number in numbers:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"many-{number}", "namespace": "ml"},
               "spec": {"nodeName": f"gpu-{number % 2 + 1}", "containers": [{"name": "train", "image": "none"}]}}
        connection.request("POST", "/api/v1/namespaces/ml/pods", json.dumps(pod),
                           {"Authorization": "Bearer token-of-admin", "Content-Type": "application/json"})
        response = connection.getresponse()
        assert response.read() and response.status == 201, response.status
with ThreadPoolExecutor(8) as pool: list(pool.map(create, [range(first, 5001, 8) for first in range(1, 9)]))
PY
eventually "of 5000 pods, the 2500 of this node have names" names 'sum(name.startswith("ml/many-") for name in pods) == 2500'
rss=$(sed -n 's/^VmHWM:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$fleet_pid/status")
bytes=$(stat -c %s "$work/run/owners.json")
echo "uvmd-fleet: $((rss / 1024)) MiB at most, $bytes bytes of names"
[ "$rss" -lt $((128 * 1024)) ] || die "it took $rss KiB"
curl -sf --cacert "$APISERVER/cert/ca.crt" -H 'Authorization: Bearer token-of-admin' -X DELETE -o /dev/null \
  "https://127.0.0.1:$APISERVER_PORT/api/v1/namespaces/ml/pods?gracePeriodSeconds=0" || die "the pods were not deleted"
eventually "all of them are gone" names 'all(pod["deleted_at"] for name, pod in pods.items() if name.startswith("ml/"))'

status=0
