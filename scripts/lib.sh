# Shared by the scripts of this project: where things are kept, and how progress is told. Source it; it runs nothing.
# shellcheck shell=bash disable=SC2034 # what it defines is used by those who source it

set -euo pipefail

UVMD_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
UVMD_CACHE=$(realpath -m "${UVMD_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/uvmd}")
# The scripts take binaries from here, whatever the user's own settings for cargo are.
export CARGO_TARGET_DIR=$UVMD_ROOT/target
unset CARGO_BUILD_TARGET

UVMD_BPF_LINKER_VERSION=0.13.0

# lab_versions KIND: the drivers or the kernels that lab/versions has, the one that is used unless another is asked for first.
lab_versions() { awk -v kind="$1" '$1 == kind { print $2 }' "$UVMD_ROOT/lab/versions"; }
# lab_suite KIND VERSION: the Debian suite that has it; fails where lab/versions does not have it.
lab_suite() { awk -v kind="$1" -v version="$2" '$1 == kind && $2 == version { print $3; found = 1 } END { exit !found }' "$UVMD_ROOT/lab/versions"; }

# lab_debian_drivers: the drivers that a Debian suite has.
lab_debian_drivers() { awk '$1 == "driver" && $3 != "source" { print $2 }' "$UVMD_ROOT/lab/versions"; }
# lab_has_driver VERSION: whether the lab can have it: by a Debian suite, by UVMD_NVIDIA_SOURCE, or since it was fetched before.
lab_has_driver() {
  [ "$(lab_suite driver "$1")" != source ] || [ -n "${UVMD_NVIDIA_SOURCE:-}" ] || [ -d "$(lab_driver_dir "$1")/nvidia-uvm" ]
}

# What the lab is made of, for this script and those it starts. Whatever is built of it is kept by exact package and checksum.
UVMD_LAB_DRIVER=${UVMD_LAB_DRIVER:-$(lab_versions driver | sed -n 1p)}
UVMD_LAB_KERNEL=${UVMD_LAB_KERNEL:-$(lab_versions kernel | sed -n 1p)}
UVMD_LAB_BUILD=${UVMD_LAB_BUILD:-release} # or debug: the driver with its asserts and its checks of lock order
export UVMD_LAB_DRIVER UVMD_LAB_KERNEL UVMD_LAB_BUILD

# uvmd's options where it acts in the lab: the guest's memory is small, and so is what uvmd must leave of it; the link rewrites all of the GPU's memory in
# half a second, a tenth of what a real one takes, and so uvmd looks after what is in force more often.
UVMD_LAB_ACTING='--set policy.host_reserve=64MiB --set policy.interval=20ms'

# Where scripts/setup puts a kernel and a driver's source: links to folders that are named by package and checksum.
lab_kernel_dir() { echo "$UVMD_CACHE/kernel-$1"; }
lab_driver_dir() { echo "$UVMD_CACHE/driver-$1"; }
# lab_initrd KIND: where lab/vm/build-initrd puts the guest's root: `lab`, or `scenarios` for one without CUDA.
lab_initrd() { echo "$UVMD_ROOT/target/lab/initrd-$1-$UVMD_LAB_DRIVER-$UVMD_LAB_KERNEL-$UVMD_LAB_BUILD"; }

# Where scripts/setup puts prometheus and promtool.
UVMD_PROMETHEUS=$UVMD_CACHE/prometheus
# What scripts/package packs with.
UVMD_CARGO_DEB_VERSION=3.8.0
UVMD_CARGO_RPM_VERSION=0.21.1
# Debian has none, in no suite.
UVMD_CARGO_DENY_VERSION=0.20.2
# What runs the tests, where the machine has none.
UVMD_NEXTEST_VERSION=0.9.143
UVMD_CARGO_DEB=$UVMD_CACHE/cargo-deb-$UVMD_CARGO_DEB_VERSION
UVMD_CARGO_RPM=$UVMD_CACHE/cargo-generate-rpm-$UVMD_CARGO_RPM_VERSION
UVMD_CARGO_DENY=$UVMD_CACHE/cargo-deny-$UVMD_CARGO_DENY_VERSION
UVMD_NEXTEST=$UVMD_CACHE/cargo-nextest-$UVMD_NEXTEST_VERSION
# The JSON schemas of CycloneDX, of the version in tests/scripts/cyclonedx.requirements.
UVMD_CYCLONEDX=$UVMD_CACHE/cyclonedx-schemas-11.12.0
UVMD_SCHEMATHESIS_VERSION=4.32.5
UVMD_SCHEMATHESIS=$UVMD_CACHE/schemathesis-$UVMD_SCHEMATHESIS_VERSION
# foreign_dir NAME: where scripts/setup installs a program of others, of what lab/programs has of this name.
foreign_dir() {
  local sources=("$UVMD_ROOT/lab/programs/$1.requirements")
  [ "$1" != burn ] || sources+=("$UVMD_ROOT"/lab/programs/burn/{Cargo.lock,Cargo.toml,src/main.rs})
  echo "$UVMD_CACHE/foreign-$1-$(cat "${sources[@]}" | sha256sum | cut -c 1-12)"
}
# manifests_dir: where scripts/kubernetes installs Helm's library and the schemas of Kubernetes.
manifests_dir() { echo "$UVMD_CACHE/manifests-$(sha256sum "$UVMD_ROOT/tests/scripts/manifests.requirements" | cut -c 1-12)"; }
UVMD_KUBE_APISERVER_VERSION=1.20.2
# kube_apiserver_dir: where scripts/setup puts the API server of Kubernetes that tests run, and its etcd. The name has what it is built of.
kube_apiserver_dir() {
  echo "$UVMD_CACHE/kube-apiserver-$UVMD_KUBE_APISERVER_VERSION-$(sha256sum "$UVMD_ROOT/scripts/build-kube-apiserver" | cut -c 1-12)"
}
# vendor_cuda_dir VERSION: where scripts/setup puts NVIDIA's libcuda of a driver.
vendor_cuda_dir() { echo "$UVMD_CACHE/vendor-cuda-$1"; }

# Where uvmd listens, on a node and for the lab's guest.
UVMD_PORT=9477

# remapped_crates: flags of rustc, a line each, that name the sources of crates by neutral paths. Of several that match, rustc takes the last.
remapped_crates() {
  local cargo=${CARGO_HOME:-${HOME:-/root}/.cargo} sources
  echo "--remap-path-prefix=$cargo=/cargo"
  # The folders of registries, whose names differ between machines. They are there once something was fetched.
  for sources in "$cargo"/registry/src/*/; do
    [ ! -d "$sources" ] || echo "--remap-path-prefix=${sources%/}=/crates"
  done
}

# remap_paths: has cargo's builds name sources by neutral paths instead of this machine's, in panics and debug information.
# Cargo keeps builds with other flags apart: what shares target/release with scripts/build uses this, too, or is built twice.
# The path of this project is in no flag of third-party crates: what they compile to is of use to other clones (scripts/dependencies). The
# wrapper for its own crates is found by its name, as cargo adds that to the ids of crates: they are the same in every folder.
remap_paths() {
  local flags=()
  [ -z "${RUSTFLAGS:-}" ] || read -ra flags <<<"$RUSTFLAGS"
  (cd "$UVMD_ROOT" && cargo fetch --locked --quiet --target "$(rustc -vV | sed -n 's/^host: //p')") ||
    die "the crates of Cargo.lock were not fetched, for the reason above; once they are, a build needs no network"
  mapfile -t -O ${#flags[@]} flags < <(remapped_crates)
  CARGO_ENCODED_RUSTFLAGS=$(IFS=$'\x1f' && echo "${flags[*]}")
  export CARGO_ENCODED_RUSTFLAGS PATH=$UVMD_ROOT/scripts/rustc:$PATH RUSTC_WORKSPACE_WRAPPER=remapped-rustc
}

say() { printf '==> %s\n' "$*" >&2; }
note() { printf '    %s\n' "$*" >&2; }
die() {
  printf '%s: error: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# help_of FILE: the comment at its top, without the line for shellcheck.
help_of() { sed -n '2,/^# shellcheck/{/^# shellcheck/d;s/^# \{0,1\}//p}' "$1"; }

# with_progress LABEL LOGFILE COMMAND...: run quietly, log to a file, show that time passes; on failure show the log's end.
with_progress() {
  local label=$1 log=$2 started=$SECONDS job status=0
  shift 2
  mkdir -p "$(dirname "$log")"
  say "$label"
  # In a process group of its own, which ends with us: a build nobody waits for would hold the locks.
  set -m
  "$@" >"$log" 2>&1 </dev/null &
  job=$!
  set +m
  # shellcheck disable=SC2064 # the job's number now
  trap "kill -TERM -- -$job 2>/dev/null; exit 130" INT TERM HUP
  while kill -0 "$job" 2>/dev/null; do
    sleep 1
    if [ -t 2 ]; then
      printf '\r    %3d s  %s\033[K' $((SECONDS - started)) "$(tail -c 200 "$log" | tr -d '\r' | tail -n 1 | cut -c 1-90)" >&2
    fi
  done
  wait "$job" || status=$?
  trap - INT TERM HUP
  [ ! -t 2 ] || printf '\r\033[K' >&2
  if [ "$status" -ne 0 ]; then
    tail -n 40 "$log" >&2
    die "$label failed (exit $status); the whole log is $log"
  fi
  note "done in $((SECONDS - started)) s"
}

# The machine's own mirror, so that nothing here names a host: where its apt sources find the main part of its own release.
debian_mirror() {
  # shellcheck disable=SC2016 # apt's own variables
  apt-get indextargets --format '$(REPO_URI) $(COMPONENT) $(RELEASE) $(CODENAME)' |
    awk -v r="$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)" '$2 == "main" && ($3 == r || $4 == r) { print $1; exit }'
}

# lock FILE DESCRIPTOR: held until the script ends.
lock() {
  mkdir -p "$(dirname "$1")"
  eval "exec $2>\"\$1\""
  flock -n "$2" || {
    note "waiting for another run to finish"
    flock "$2"
  }
}

# Publish a finished folder under its final name in one step, so that an interrupted run never leaves half a result.
publish() {
  local from=$1 to=$2
  rm -rf "$to"
  mv -T "$from" "$to"
}
