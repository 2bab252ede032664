#!/usr/bin/env bash
# The API of a running uvmd is what its OpenAPI document says, by schemathesis.
#
#   tests/scripts/schemathesis.sh [UVMD]
#
# It asks every operation but the stream of events, which does not end, and /readyz, which is 503 without a driver. Changes are made with a token.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"

uvmd=${1:-}
if [ -z "$uvmd" ]; then
  # --tests: with the features that the tests have, so that nothing is compiled twice.
  cargo build --locked --quiet --workspace --tests --bin uvmd
  uvmd=${CARGO_TARGET_DIR:-target}/debug/uvmd
fi
[ -x "$UVMD_SCHEMATHESIS/bin/st" ] || die "schemathesis is missing: run scripts/setup"

work=$(mktemp -d) pid=''
trap '[ -z "$pid" ] || { kill "$pid" 2>/dev/null && wait "$pid"; } || true; rm -rf "$work"' EXIT
umask 077
mkdir "$work/state"
printf 'read-token-of-this-test\n' >"$work/read"
printf 'write-token-of-this-test\n' >"$work/write"
# Any free port: uvmd logs which one it has.
"$uvmd" --listen 127.0.0.1:0 --set "socket.path=\"$work/uvmd.sock\"" --set "policy.state_dir=\"$work/state\"" \
  --set "auth.token_file=\"$work/read\"" --set "auth.write_token_file=\"$work/write\"" >"$work/log" 2>&1 &
pid=$!
url=''
for _ in $(seq 100); do
  url=$(sed -n 's/.* serves on \(http:[^ ]*\)$/\1/p' "$work/log")
  [ -z "$url" ] || break
  kill -0 "$pid" || die "uvmd ended: $(cat "$work/log")"
  sleep 0.1
done
[ -n "$url" ] || die "uvmd does not serve: $(cat "$work/log")"

status=0
# Its cache goes to the folder that it runs in.
(cd "$work" && timeout 90 "$UVMD_SCHEMATHESIS/bin/st" --config-file "$UVMD_ROOT/tests/scripts/schemathesis.toml" run "$url/openapi.json" \
  --header "Authorization: Bearer $(cat "$work/write")" --no-color) >"$work/report" 2>&1 || status=$?
if [ "$status" != 0 ]; then
  cat "$work/report"
  die "schemathesis: status $status"
fi
kill -0 "$pid" || die "uvmd ended: $(tail -n 20 "$work/log")"
tail -n 12 "$work/report"
