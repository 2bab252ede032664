#!/usr/bin/env bash
# Release notes: the section of the version alone, and an error for a version without one.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"

# A copy of the script beside a changelog of its own.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/scripts" "$work/lab"
cp "$UVMD_ROOT"/scripts/{lib.sh,release-notes} "$work/scripts/"
cp "$UVMD_ROOT/lab/versions" "$work/lab/"
cat >"$work/CHANGELOG.md" <<'CHANGELOG'
# Changelog

## [Unreleased]

### Added

- Tea.

## [1.10.0] - 2026-02-01

- Ten.

## [1.1.0] - 2026-01-01

## [1.0.0] - 2025-12-01

### Fixed

- One.

[1.0.0]: one.html
CHANGELOG

# expect OUTPUT ARGUMENT...
expect() {
  local got
  got=$("$work/scripts/release-notes" "${@:2}") || die "release-notes ${*:2} failed"
  [ "$got" = "$1" ] || die "release-notes ${*:2} printed: $got"
}
# refuse MESSAGE ARGUMENT...
refuse() {
  local got
  ! got=$("$work/scripts/release-notes" "${@:2}" 2>&1) || die "release-notes ${*:2} did not fail, and printed: $got"
  [[ $got == *"$1"* ]] || die "release-notes ${*:2} said: $got"
}
expect $'### Added\n\n- Tea.'
expect '- Ten.' 1.10.0
expect $'### Fixed\n\n- One.' 1.0.0
expect $'### Fixed\n\n- One.' v1.0.0
refuse 'no section for 1.0; it has: Unreleased 1.10.0 1.1.0 1.0.0' 1.0
refuse 'no section for 1x0.0' 1x0.0
refuse 'is empty' 1.1.0
refuse 'unknown option' --all
# And the real one.
next=$("$UVMD_ROOT/scripts/release-notes")
grep -q "^- " <<<"$next" || die "CHANGELOG.md has nothing for the next release"
echo "release notes: as they shall be"
