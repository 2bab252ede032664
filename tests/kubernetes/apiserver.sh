# A real API server of Kubernetes with its etcd, for tests. Source it.
# shellcheck shell=bash
#
#   apiserver_start FOLDER      certificates, tokens, etcd and the API server, on free ports; returns when it is ready
#   apiserver_kill              ends the API server alone, by SIGKILL
#   apiserver_resume            starts it again, on its port
#   apiserver_compact           compacts etcd, so that a watch of an earlier version gets 410 Gone
#   apiserver_stop              ends both
#   kubectl_as USER ARGUMENT... USER is `admin`, or NAMESPACE/NAME of one of APISERVER_ACCOUNTS
#   apiserver_kubeconfig USER   path of its configuration for clients
#
# RBAC is on. There is no kubelet, no scheduler and no controller: pods are objects, and nothing runs.
# scripts/setup --kubernetes builds both programs.

# apiserver_free_ports COUNT
apiserver_free_ports() {
  python3 -c 'import socket, sys
sockets = [socket.socket() for _ in range(int(sys.argv[1]))]
for each in sockets: each.bind(("127.0.0.1", 0))
print(*(each.getsockname()[1] for each in sockets))' "$1"
}

apiserver_start() {
  APISERVER=$1
  local ports
  [ -x "$(kube_apiserver_dir)/kube-apiserver" ] || die "there is no API server: scripts/setup --kubernetes"
  read -ra ports <<<"$(apiserver_free_ports 3)"
  APISERVER_PORT=${ports[0]} APISERVER_ETCD_PORT=${ports[1]} APISERVER_PEER_PORT=${ports[2]}
  mkdir -p "$APISERVER/cert"
  # With its own certificate authority, so that clients verify the server as on a cluster.
  openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=uvmd-test-ca -keyout "$APISERVER/cert/ca.key" -out "$APISERVER/cert/ca.crt" 2>/dev/null
  openssl req -newkey rsa:2048 -nodes -subj /CN=apiserver -keyout "$APISERVER/cert/server.key" -out "$APISERVER/cert/server.csr" 2>/dev/null
  printf 'subjectAltName=IP:127.0.0.1,DNS:localhost\n' >"$APISERVER/cert/extensions"
  openssl x509 -req -in "$APISERVER/cert/server.csr" -CA "$APISERVER/cert/ca.crt" -CAkey "$APISERVER/cert/ca.key" -CAcreateserial \
    -days 2 -extfile "$APISERVER/cert/extensions" -out "$APISERVER/cert/server.crt" 2>/dev/null
  openssl genrsa -out "$APISERVER/cert/accounts.key" 2048 2>/dev/null
  {
    printf 'token-of-admin,admin,1,"system:masters"\n'
    # Tokens of service accounts: their users and groups, as the API server has them for signed ones.
    local account namespace name
    for account in "${APISERVER_ACCOUNTS[@]}"; do
      namespace=${account%/*} name=${account#*/}
      printf 'token-of-%s-%s,system:serviceaccount:%s:%s,%s,"system:serviceaccounts,system:serviceaccounts:%s"\n' \
        "$namespace" "$name" "$namespace" "$name" "$namespace-$name" "$namespace"
    done
  } >"$APISERVER/tokens.csv"
  "$(kube_apiserver_dir)/etcd" --data-dir "$APISERVER/etcd" --unsafe-no-fsync --log-level error \
    --listen-client-urls "http://127.0.0.1:$APISERVER_ETCD_PORT" --advertise-client-urls "http://127.0.0.1:$APISERVER_ETCD_PORT" \
    --listen-peer-urls "http://127.0.0.1:$APISERVER_PEER_PORT" --initial-advertise-peer-urls "http://127.0.0.1:$APISERVER_PEER_PORT" \
    --initial-cluster "default=http://127.0.0.1:$APISERVER_PEER_PORT" >"$APISERVER/etcd.log" 2>&1 &
  APISERVER_ETCD=$!
  apiserver_resume
}

apiserver_resume() {
  # Loopback cannot be advertised. Nothing connects to the advertised address.
  "$(kube_apiserver_dir)/kube-apiserver" --etcd-servers "http://127.0.0.1:$APISERVER_ETCD_PORT" --bind-address 127.0.0.1 \
    --secure-port "$APISERVER_PORT" --advertise-address 192.0.2.1 --endpoint-reconciler-type none --cert-dir "$APISERVER/cert" \
    --tls-cert-file "$APISERVER/cert/server.crt" --tls-private-key-file "$APISERVER/cert/server.key" \
    --token-auth-file "$APISERVER/tokens.csv" --authorization-mode RBAC --service-account-issuer https://kubernetes.default.svc \
    --service-account-key-file "$APISERVER/cert/accounts.key" --service-account-signing-key-file "$APISERVER/cert/accounts.key" \
    --disable-admission-plugins ServiceAccount,TaintNodesByCondition --etcd-compaction-interval 0 \
    "${APISERVER_OPTIONS[@]}" >>"$APISERVER/apiserver.log" 2>&1 &
  APISERVER_PID=$!
  local deadline=$((SECONDS + 60))
  until kubectl_as admin get --raw /readyz >/dev/null 2>&1; do
    kill -0 "$APISERVER_PID" 2>/dev/null || die "the API server has exited: $(tail -n 5 "$APISERVER/apiserver.log")"
    [ $SECONDS -lt $deadline ] || die "the API server is not ready: $(tail -n 5 "$APISERVER/apiserver.log")"
    sleep 0.2
  done
}

apiserver_kill() {
  kill -KILL "$APISERVER_PID"
  wait "$APISERVER_PID" 2>/dev/null || true
}

apiserver_stop() {
  local pid
  for pid in ${APISERVER_PID:-} ${APISERVER_ETCD:-}; do
    kill -KILL "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
}

# By etcd's HTTP gateway, as there is no etcdctl.
apiserver_compact() {
  local url=http://127.0.0.1:$APISERVER_ETCD_PORT/v3 revision
  revision=$(curl -sf "$url/kv/range" -d '{"key": "AA==", "count_only": true}' | sed -nE 's/.*"revision": ?"([0-9]+)".*/\1/p')
  curl -sf "$url/kv/compaction" -d "{\"revision\": \"$revision\", \"physical\": true}" >/dev/null || die "etcd was not compacted"
}

# apiserver_token USER
apiserver_token() {
  case $1 in
    admin) echo token-of-admin ;;
    *) echo "token-of-${1/\//-}" ;;
  esac
}

# apiserver_kubeconfig USER: `admin`, or NAMESPACE/NAME of a service account.
apiserver_kubeconfig() {
  local file=$APISERVER/kubeconfig-${1/\//-}
  [ -e "$file" ] || cat >"$file" <<YAML
apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: "https://127.0.0.1:$APISERVER_PORT", certificate-authority: "$APISERVER/cert/ca.crt"}}]
users: [{name: test, user: {token: $(apiserver_token "$1")}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
YAML
  echo "$file"
}

# kubectl_as USER ARGUMENT...
kubectl_as() {
  local user=$1
  shift
  KUBECONFIG=$(apiserver_kubeconfig "$user") kubectl --cache-dir "$APISERVER/cache" "$@"
}
