#!/usr/bin/env bash
# The helper in front of NVIDIA's own libcuda, of each of the lab's drivers: every function that it hooks is given out as the hook, by dlsym,
# by cuGetProcAddress, and to NVIDIA's runtime library, static and shared. No GPU is needed, as none is found.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"

scripts/setup --vendor-cuda
scripts/build-helper
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cudart=$(foreign_dir cudart)/nvidia
flags=(-O1 -Wall -Wextra -Werror)
gcc "${flags[@]}" -o "$work/pointers" tests/helper/pointers.c -ldl
gcc "${flags[@]}" -o "$work/static-13" tests/helper/cudart.c "$cudart/cu13/lib/libcudart_static.a" -ldl -lpthread -lrt -lm
for library in "$cudart/cu13/lib/libcudart.so.13" "$cudart/cuda_runtime/lib/libcudart.so.12"; do
  gcc "${flags[@]}" -o "$work/shared-${library##*.}" tests/helper/cudart.c "$library" -ldl -Wl,-rpath,"$(dirname "$library")"
done
sed -n 's/^    //p' helper/hooked.rs | sort >"$work/hooked"

helper=(env UVMD_HELPER=record LD_PRELOAD="$UVMD_ROOT/target/helper/libuvmd_helper.so")
for version in $(lab_debian_drivers); do
  export LD_LIBRARY_PATH
  LD_LIBRARY_PATH=$(vendor_cuda_dir "$version")
  nm -D --defined-only "$LD_LIBRARY_PATH/libcuda.so.1" | awk '{ sub(/@.*/, "", $3); print $3, $1 }' | sort | join - "$work/hooked" >"$work/offsets"
  [ -s "$work/offsets" ] || die "libcuda $version has none of the functions"

  # Without the helper each is the driver's; with it, of the same ones, each is a hook.
  "$work/pointers" <"$work/hooked" >"$work/plain"
  "${helper[@]}" "$work/pointers" <"$work/hooked" >"$work/with"
  ! grep -v ' driver$\| none$' "$work/plain" || die "libcuda $version: not the driver's, without the helper"
  sed 's/ driver$/ hook/' "$work/plain" | diff - "$work/with" || die "libcuda $version: these pointers passed the helper"
  by_name=$(grep -c '^dlsym.* hook$' "$work/with") answers=$(grep -c '^[0-9].* hook$' "$work/with")
  note "libcuda $version: $by_name functions by dlsym, $answers answers of cuGetProcAddress and cuGetProcAddress_v2"
  ((by_name > 100 && answers > 1000)) || die "libcuda $version gives out fewer functions than it has"

  for program in "$work"/static-* "$work"/shared-*; do
    plain=$("$program" <"$work/offsets")
    with=$("${helper[@]}" "$program" <"$work/offsets")
    [[ $plain =~ ^errors\ [1-9][0-9]*\ [1-9][0-9]*,\ hooks\ 0,\ past\ ([1-9][0-9]+)$ ]] || die "libcuda $version, runtime $(basename "$program"): $plain"
    [ "$with" = "${plain%%,*}, hooks ${BASH_REMATCH[1]}, past 0" ] || die "libcuda $version, runtime $(basename "$program"): $with instead of $plain"
    note "libcuda $version, runtime $(basename "$program"): ${BASH_REMATCH[1]} functions, each by its hook"
  done
done
