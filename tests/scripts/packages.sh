#!/usr/bin/env bash
# Check the deb and the rpm: lints, contents, what their scripts do, and that packing twice gives equal bytes.
#
#   tests/scripts/packages.sh              builds first
#   tests/scripts/packages.sh --no-build   of the binaries that are in target/release
#
# The rpm is installed, upgraded and removed in a root of its own, with --nodeps: Debian has no userland of rpms. A shell and find are copied there;
# systemctl, systemd-sysusers and systemd-tmpfiles are stubs that write down how they are called.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"

options=()
case ${1:-} in
  '') ;;
  --no-build) options=(--no-build) ;;
  -h | --help) help_of "$0"; exit 0 ;;
  *) die "unknown option $1 (see --help)" ;;
esac
# What is installed stays where it is, also for whoever has another home.
export CARGO_HOME=${CARGO_HOME:-$HOME/.cargo} RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup} UVMD_CACHE
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wrong=0
mistake() {
  printf 'wrong: %s\n' "$*"
  wrong=1
}
# same WHAT EXPECTED ACTUAL
same() { [ "$2" = "$3" ] || mistake "$1:"$'\n'"$(diff <(echo "$2") <(echo "$3") | grep '^[<>]')"; }

scripts/package "${options[@]}"
cp -r target/package "$work/first"
deb=$(echo "$work"/first/*.deb) rpm=$(echo "$work"/first/*.rpm)

# --- lints: no tag but those in packaging/deb/lintian-overrides and packaging/rpm/rpmlint.toml
lints() {
  local found
  # Also of severity info, and an exception that nothing needs any more.
  found=$(lintian --allow-root --no-cfg --fail-on none --display-info "$deb" | grep -E '^[EWI]:' || true)
  [ -z "$found" ] || mistake "lintian: $found"
  found=$(rpmlint -c packaging/rpm/rpmlint.toml "$rpm" | grep -E ': [EW]: ' || true)
  [ -z "$found" ] || mistake "rpmlint: $found"
}

# --- contents
# The files of both packages, but for what each distribution has in a place of its own.
common() { grep -vxE "$1" | sort; }
of_deb='usr/share/zsh/vendor-completions/_uvmctl|usr/share/doc/uvmd/(copyright|changelog.Debian.gz)|usr/share/lintian/overrides/uvmd'
of_deb+='|usr/lib/systemd/system/uvmd.service.d/10-perf-event-paranoid.conf'
of_rpm='usr/share/zsh/site-functions/_uvmctl'

contents() {
  local file modes
  dpkg-deb -x "$deb" "$work/deb"
  mkdir "$work/rpm"
  # It exits with 1 after all of it: cargo-generate-rpm does not write the size that it compares with.
  rpm2cpio "$rpm" >"$work/cpio" || true
  (cd "$work/rpm" && cpio --quiet -idm <"$work/cpio")
  same "files of the deb and the rpm" "$(cd "$work/deb" && find . -type f -printf '%P\n' | common "$of_deb")" \
    "$(cd "$work/rpm" && find . -type f -printf '%P\n' | common "$of_rpm")"
  for file in $(cd "$work/rpm" && find . -type f -printf '%P\n' | common "$of_rpm"); do
    cmp -s "$work/deb/$file" "$work/rpm/$file" || mistake "$file differs between the deb and the rpm"
  done
  cmp -s "$work"/{deb/usr/share/zsh/vendor-completions,rpm/usr/share/zsh/site-functions}/_uvmctl || mistake "_uvmctl differs"
  same "pages of docs" "$(git ls-files 'docs/*.md' README.md CHANGELOG.md SECURITY.md | sort)" \
    "$(cd "$work/rpm/usr/share/doc/uvmd" && find . -name '*.md' -printf '%P\n' | sort)"
  # That of RHEL 9.
  same "glibc that the rpm needs" 2.34 "$(command rpm -qp --requires "$rpm" | grep -oP 'GLIBC_\K[0-9.]+' | sort -uV | tail -n 1)"
  for file in man1/uvmctl.1.gz man8/uvmd.8.gz; do
    [ -s "$work/rpm/usr/share/man/$file" ] || mistake "there is no $file"
  done
  same "configuration files of the rpm (c: %config, n: noreplace)" $'cn /etc/logrotate.d/uvmd\ncn /etc/uvmd/uvmd.toml' \
    "$(query '[%{FILEFLAGS:fflags} %{FILENAMES}\n]' | grep -v '^d* /')"
  same "configuration files of the deb" $'/etc/logrotate.d/uvmd\n/etc/uvmd/uvmd.toml' "$(dpkg-deb -I "$deb" conffiles | sort)"
  # All are root's, programs may be run, and nobody else writes.
  modes=$'-rw-r--r-- root root\n-rwxr-xr-x root root /usr/bin/uvmctl\n-rwxr-xr-x root root /usr/bin/uvmd\n-rwxr-xr-x root root /usr/share/uvmd/helper/slurm-task-prolog\n-rwxr-xr-x root root /usr/share/uvmd/slurm/epilog\n-rwxr-xr-x root root /usr/share/uvmd/slurm/prolog'
  same "modes and owners of the rpm" "$modes" \
    "$(query '[%{FILEMODES:perms} %{FILEUSERNAME} %{FILEGROUPNAME} %{FILENAMES}\n]' | sed 's,^\(-rw-r--r-- .* \)/.*,\1,;s/ $//' | sort -u)"
  same "modes and owners of the deb" "$(sed 's/root root/0\/0/' <<<"$modes")" \
    "$(dpkg-deb -c "$deb" | grep -v '^drwxr-xr-x 0/0 ' | awk '{ print $1, $2 ($1 == "-rw-r--r--" ? "" : " " substr($6, 2)) }' | sort -u)"
}
query() { command rpm -qp --queryformat "$1" "$rpm"; }

# --- scripts and units
scripts() {
  local name
  mkdir "$work/control"
  dpkg-deb -e "$deb" "$work/control"
  for name in postinst postrm prerm; do sh -n "$work/control/$name" || mistake "$name of the deb"; done
  # Of the rpm as it carries them.
  for name in POSTIN PREUN POSTUN; do
    query "%{$name}" >"$work/$name"
    if [ ! -s "$work/$name" ] || ! sh -n "$work/$name" || ! shellcheck -s sh "$work/$name"; then mistake "$name of the rpm"; fi
  done
}

# units ROOT: with the targets that they name, which are the machine's.
units() {
  local found
  add_programs "$1" /bin/kill
  (cd /usr/lib/systemd/system && cp -n -- *.target *.slice "$1/usr/lib/systemd/system/")
  # systemd-analyze also exits with 0 after lines about unknown directives.
  found=$(systemd-analyze verify --man=no --root="$1" uvmd.service uvmd.socket 2>&1) || found+=" (exit $?)"
  [ -z "$found" ] || mistake "systemd-analyze: $found"
}

# add_programs ROOT PROGRAM...: with their libraries.
add_programs() {
  local root=$1 program
  shift
  for program in "$@"; do
    { echo "$program" && { ldd "$program" | grep -oE '/[^ ]+' || true; }; } | xargs cp -L --parents -t "$root"
  done
}

# --- the rpm, installed
installed() {
  local root=$work/root stub
  mkdir -p "$root"/{usr/bin,run/systemd/system,dev}
  touch "$root/dev/null" # a plain file does, and takes no root
  add_programs "$root" /bin/sh /usr/bin/find
  for stub in systemctl systemd-sysusers systemd-tmpfiles; do
    printf '#!/bin/sh\necho "%s $*" >>/calls\n' "$stub" >"$root/usr/bin/$stub"
    chmod 755 "$root/usr/bin/$stub"
  done

  in_root -i "$rpm"
  same "calls of an installation" "systemd-sysusers uvmd.conf
systemd-tmpfiles --create uvmd.conf
systemctl daemon-reload
systemctl --no-reload preset uvmd.service uvmd.socket" "$(calls)"
  in_root -V uvmd || mistake "rpm -V after an installation"
  cp -r "$root" "$work/rpm-units" && units "$work/rpm-units"

  # Uncompressed, which takes a second instead of 15.
  PATH=$UVMD_CARGO_RPM/bin:$PATH cargo generate-rpm --package uvmd --auto-req find-requires --payload-compress none --set-metadata 'release = "2"' \
    --output "$work/second.rpm"
  echo '# mine' >>"$root/etc/uvmd/uvmd.toml"
  in_root -U "$work/second.rpm"
  same "calls of an upgrade" "systemd-sysusers uvmd.conf
systemd-tmpfiles --create uvmd.conf
systemctl daemon-reload
systemctl daemon-reload
systemctl try-restart uvmd.service" "$(calls)"
  grep -qx '# mine' "$root/etc/uvmd/uvmd.toml" || mistake "an upgrade overwrites uvmd.toml"

  in_root -e uvmd
  same "calls of a removal" "systemctl --no-reload disable --now uvmd.service uvmd.socket
systemctl daemon-reload" "$(calls)"
  # Folders of the system that the package was the first to use stay.
  same "what a removal leaves" "$(printf '%s\n' ./etc/uvmd ./etc/uvmd/uvmd.toml.rpmsave)" \
    "$(cd "$root" && find . -path '*uvm*' | sort)"
}
calls() { cat "$work/root/calls" && rm "$work/root/calls"; }
# As root, or as what looks like it: rpm changes its root for the scripts.
in_root() {
  local root=(unshare --map-root-user)
  [ "$(id -u)" != 0 ] || root=()
  "${root[@]}" rpm --quiet --root "$work/root" --dbpath /var/lib/rpm --nodeps "$@"
}

# --- equal bytes
# A copy of the tree in another folder, with other times and modes, packed by a user with another home, time zone, locale, umask and number of processors.
packed_twice() {
  local copy=$work/elsewhere/tree file
  mkdir -p "$work/elsewhere" "$work/home"
  (
    umask 077
    git ls-files --cached --others --exclude-standard | while read -r file; do
      [ ! -f "$file" ] || { mkdir -p "$copy/$(dirname "$file")" && cp "$file" "$copy/$file"; }
    done
    mkdir -p "$copy/target/release"
    cp target/release/{uvmd,uvmctl} "$copy/target/release/"
    git -C "$copy" init -q
    git -C "$copy" add -A
    find "$copy" -type f -exec touch -d 2001-02-03 {} +
    SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
    export SOURCE_DATE_EPOCH
    env -u CARGO_TARGET_DIR HOME="$work/home" USER=somebody LOGNAME=somebody TZ=Pacific/Auckland LC_ALL=C LANG=C \
      taskset -c 0 "$copy/scripts/package" --no-build
  )
  for file in "$deb" "$rpm"; do
    cmp "$file" "$copy/target/package/$(basename "$file")" || mistake "$(basename "$file"): packed twice, it differs"
  done
}

# No path of the machine that built the programs: see remap_paths of scripts/lib.sh.
paths() {
  local file folder found
  for file in uvmd uvmctl; do
    for folder in "$UVMD_ROOT" "$CARGO_HOME" "$UVMD_CACHE" "${HOME%/}"; do
      [ -z "$folder" ] || {
        found=$(strings -a "$work/deb/usr/bin/$file" | grep -F -m 3 "$folder/" || true)
        [ -z "$found" ] || mistake "$file has paths in $folder: $found"
      }
    done
  done
}

# Beside the packages: the SBOM that they have inside, and the notes of the release.
beside() {
  cmp "$work"/first/uvmd-*.cdx.json "$work/rpm/usr/share/doc/uvmd/uvmd.cdx.json" || mistake "the SBOM beside the packages is another one"
  grep -q '^- ' "$work/first/release-notes.md" || mistake "release-notes.md has no changes"
}

for check in lints contents scripts installed packed_twice paths beside; do
  say "$check"
  "$check"
done
units "$work/deb"
ls -l "$work/first"
[ "$wrong" = 0 ] || die "something is wrong with the packages"
