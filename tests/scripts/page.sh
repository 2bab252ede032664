#!/usr/bin/env bash
# The page in a real browser: every view, width, theme, key and link, over the showcase's nodes. Installs Chromium and the packages of
# web/tests/browser into the cache where they are missing.
#
#   tests/scripts/page.sh              the tests
#   tests/scripts/page.sh --pictures   docs/images/page-light.png and page-dark.png anew, from the demo in which uvmd acts
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"

command -v chromium >/dev/null || scripts/setup --browser
command -v npm >/dev/null || die "npm is missing: install Node.js 20 or later"
tests=$UVMD_ROOT/web/tests/browser
packages=$UVMD_CACHE/page-$(sha256sum "$tests/package-lock.json" | cut -c 1-12)
if [ ! -d "$packages" ]; then
  lock "$UVMD_CACHE/page.lock" 9
  work=$(mktemp -d "$UVMD_CACHE/tmp.XXXXXX")
  cp "$tests"/package.json "$tests"/package-lock.json "$work/"
  # Nothing of a package runs at its installation: no browser is downloaded.
  with_progress "installing the packages of the browser's tests" "$UVMD_CACHE/log/page-npm.log" \
    npm ci --prefix "$work" --ignore-scripts --no-audit --no-fund
  publish "$work" "$packages"
fi
export PAGE_TEST_PACKAGES=$packages PAGE_TEST_CHROMIUM
PAGE_TEST_CHROMIUM=$(command -v chromium)
if [ "${1:-}" = --pictures ]; then
  port=9577
  log=$UVMD_CACHE/log/pictures.log
  mkdir -p "${log%/*}" && : >"$log"
  scripts/demo --lab --act --port $port >"$log" 2>&1 &
  demo=$!
  # It ends with 143. In the background, it ignores SIGINT.
  trap 'kill -TERM "$demo" 2>/dev/null; wait "$demo" || true' EXIT
  until token=$(grep -o 'enters this token: [0-9a-f]*' "$log"); do
    kill -0 "$demo" || die "the demo ended: $log"
    sleep 1
  done
  node "$tests/pictures.mjs" "http://127.0.0.1:$port/" "${token##* }" docs/images
  exit
fi
cargo build --locked --quiet --workspace --tests --example showcase
PAGE_TEST_SHOWCASE=$CARGO_TARGET_DIR/debug/examples/showcase \
  node --test --test-concurrency=2 "$tests"/*.test.mjs
