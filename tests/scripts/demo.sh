#!/usr/bin/env bash
# Demo: exact processes, faults that fall while uvmd acts, the JSON file, README's commands; nothing is left behind, whenever it is interrupted.
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
# readme_is_true: uvmd serves, and README's commands work on it with the tokens that the demo made.
readme_is_true() {
  serves || return 1
  local token
  token=$(grep -oE 'UVMD_TOKEN_FILE=[^ ]+' "$log" | sed -n '1s/.*=//p')
  [ -n "$token" ] || return 1
  tests/scripts/readme.py "http://127.0.0.1:$port" "${token%/*}/read.token" "$token" || fail "README's commands"
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
  deadline=$((SECONDS + 120))
  # Again and again: a terminal signals the whole group, and a shell alone may lose a signal while it waits for a child that exits by itself. Once
  # it ends, the demo ignores the others.
  while kill -INT "$demo" 2>/dev/null; do
    [ "$SECONDS" -lt "$deadline" ] || { kill -TERM "$demo"; fail "interrupted ($1), the demo goes on"; }
    sleep 1
  done
  wait "$demo" || status=$?
  [ "$status" = 130 ] || fail "interrupted ($1), the demo ended with $status"
  guest_is_gone || fail "interrupted ($1), the demo left its guest behind"
}
boots() { grep -q 'waiting for uvmd' "$log"; }

scripts/demo --lab --port "$port" --act --seconds 65 --json "$json" >"$log" 2>&1 </dev/null || fail "the demo ended with $?"
python3 - "$json" <<'PYTHON' || fail "the figures are not those of processes that share a card"
import json, sys
from datetime import datetime, timedelta

said = json.load(open(sys.argv[1]))
processes = {process["name"]: process for process in said["processes"]["processes"]}
assert set(processes) == {"pingpong", "victim", "thrasher"}, set(processes)
assert processes["thrasher"]["evicted_bytes"] > 0 and processes["victim"]["bytes_htod"] > 0, processes

# What was done, and that it was taken back in the end.
decisions = said["decisions"]["decisions"]
plans = [decision for decision in decisions if (decision["name"], decision["policy"]) == ("pingpong", "ping-pong") and decision["after"]]
assert plans and plans[0]["stage"] == "ended" and plans[0]["faults_saved"] > 0.5, decisions
time = datetime.fromisoformat
began = min(time(decision["created_at"]) for decision in decisions)
ended = time(plans[0]["updated_at"])

def rate(figure, begin, end):
    """Of all processes, a second."""
    counted = seconds = 0
    for history in said["histories"].values():
        each = timedelta(seconds=history["interval_seconds"])
        for at, sample in enumerate(history["samples"]):
            if sample is not None and begin <= time(history["started_at"]) + at * each and time(history["started_at"]) + (at + 1) * each <= end:
                counted += sum(sample[name] for name in figure)
                seconds += each.total_seconds()
    return counted * len(said["histories"]) / seconds

for what, figure in ("GPU faults", ["fault_entries"]), ("bytes copied", ["bytes_htod", "bytes_dtoh"]):
    before = rate(figure, began - timedelta(seconds=10), began)
    acting = rate(figure, ended - timedelta(seconds=10), ended)
    since = rate(figure, ended + timedelta(seconds=3), time(said["processes"]["time"]))
    print(f"{what} a second: {before:,.0f} before uvmd acts, {acting:,.0f} while it does, {since:,.0f} after it", file=sys.stderr)
    assert acting <= before / 2, f"{what} have not fallen"
    assert since >= 2 * acting, f"{what} have not come back"
PYTHON
guest_is_gone || fail "the demo left its guest behind"
interrupted boots
interrupted readme_is_true
note "ok"
