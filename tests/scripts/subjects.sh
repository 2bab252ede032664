#!/usr/bin/env bash
# Check the subjects of commits: "part: what", at most 72 characters. Older commits than the rule are left alone.
set -euo pipefail

wrong=$(git log --no-merges --since=2026-11-28T00:00:00Z --format='%h %s' | awk '{
  subject = substr($0, index($0, " ") + 1)
  if (length(subject) > 72 || subject !~ /^[A-Za-z][^:]*: [^ ]/) print
}')
[ -z "$wrong" ] || { printf 'the subject is not "part: what" in at most 72 characters:\n%s\n' "$wrong" >&2 && exit 1; }
