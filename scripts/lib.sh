# Shared by the scripts in this folder: where things are kept, and how progress is told. Source it; it runs nothing.
# shellcheck shell=bash disable=SC2034 # what it defines is used by those who source it

set -euo pipefail

UVMD_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
UVMD_CACHE=${UVMD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/uvmd}

# What the lab is made of. A resolved version (exact package, checksum) keys every cached result.
UVMD_DRIVER_VERSION=550.163.01
UVMD_KERNEL_SERIES=6.12
UVMD_KERNEL_SUITE=bookworm-backports
UVMD_BPF_LINKER_VERSION=0.13.0

say() { printf '\033[1m==>\033[0m %s\n' "$*" >&2; }
note() { printf '    %s\n' "$*" >&2; }
die() {
  printf '%s: error: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# with_progress LABEL LOGFILE COMMAND...: run quietly, log to a file, show that time passes; on failure show the log's end.
with_progress() {
  local label=$1 log=$2 started=$SECONDS pid status=0
  shift 2
  mkdir -p "$(dirname "$log")"
  say "$label"
  "$@" >"$log" 2>&1 &
  pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    sleep 1
    if [ -t 2 ]; then
      printf '\r    %3d s  %s\033[K' $((SECONDS - started)) "$(tail -c 200 "$log" | tr -d '\r' | tail -n 1 | cut -c 1-90)" >&2
    fi
  done
  wait "$pid" || status=$?
  [ -t 2 ] && printf '\r\033[K' >&2
  if [ "$status" -ne 0 ]; then
    tail -n 40 "$log" >&2
    die "$label failed (exit $status); the whole log is $log"
  fi
  note "done in $((SECONDS - started)) s"
}

# Publish a finished folder under its final name in one step, so that an interrupted run never leaves half a result.
publish() {
  local from=$1 to=$2
  rm -rf "$to"
  mv -T "$from" "$to"
}
