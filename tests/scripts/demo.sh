#!/usr/bin/env bash
# The demo counts its processes, writes their figures, and leaves nothing behind, whenever it is interrupted.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"

fail() {
  note "FAILED: $*"
  tail -n 20 "$log" >&2
  exit 1
}
log=$(mktemp) json=$(mktemp)
# Not the one that the lab's guests take when they can: one may run beside this.
port=$((UVMD_PORT + 100))
trap 'rm -f "$log" "$json"' EXIT
serves() { curl -fsS -m 5 "http://127.0.0.1:$port/readyz" >/dev/null 2>&1; }
guest_is_gone() {
  for _ in $(seq 50); do
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || return 0
    sleep 0.1
  done
  return 1
}
# interrupted WAIT_FOR: start the demo, send SIGINT once WAIT_FOR succeeds, expect 130.
interrupted() {
  local demo status=0 deadline
  # A background job ignores SIGINT, and so do its children, unless told otherwise.
  env --default-signal=INT scripts/demo --lab --port "$port" >"$log" 2>&1 </dev/null &
  demo=$!
  until "$1"; do
    kill -0 "$demo" 2>/dev/null || fail "the demo ended by itself"
    sleep 0.2
  done
  kill -INT "$demo"
  deadline=$((SECONDS + 120))
  while kill -0 "$demo" 2>/dev/null; do
    [ "$SECONDS" -lt "$deadline" ] || { kill -TERM "$demo"; fail "interrupted ($1), the demo goes on"; }
    sleep 0.2
  done
  wait "$demo" || status=$?
  [ "$status" = 130 ] || fail "interrupted ($1), the demo ended with $status"
  guest_is_gone || fail "interrupted ($1), the demo left its guest behind"
}
boots() { grep -q 'waiting for uvmd' "$log"; }

scripts/demo --lab --port "$port" --seconds 20 --json "$json" >"$log" 2>&1 </dev/null || fail "the demo ended with $?"
python3 - "$json" <<'PYTHON' || fail "the figures are not those of processes that share a card"
import json, sys
processes = {process["name"]: process for process in json.load(open(sys.argv[1]))["processes"]}
assert set(processes) == {"victim", "thrasher", "hot_cold"}, set(processes)
assert processes["thrasher"]["fault_entries"] > 100 and processes["thrasher"]["evicted_bytes"] > 0, processes["thrasher"]
assert processes["victim"]["bytes_htod"] > 0, processes["victim"]
PYTHON
guest_is_gone || fail "the demo left its guest behind"
interrupted boots
interrupted serves
note "ok"
