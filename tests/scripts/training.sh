# shellcheck shell=bash
# A training that runs natively and, with the same losses, in the lab. To be sourced behind scripts/lib.sh, and to have been given:
#
#   work      a folder; its files/ are those of the guest, beside those in "${added[@]}"
#   program   MODEL, and --layers with their number or none; of burn, Burn's network, alone or with the width of its hidden layer
#   gpu_mib   memory of the GPU
#
# In the guest, /lab/python starts it.
# shellcheck disable=SC2154

tinygrad=$(foreign_dir tinygrad) burn=$(foreign_dir burn)
added=()

# program_of MODEL LAYERS: sets program; LAYERS may be -.
program_of() {
  local option=(--layers)
  [ "$1" != burn ] || option=()
  # shellcheck disable=SC2034 # for who sources this
  program=("$1")
  [ "$2" = - ] || program+=("${option[@]}" "$2")
}

# Sets up what it needs.
prepare_training() {
  [ -e "$tinygrad" ] || scripts/setup --no-lab
  scripts/build --lab >/dev/null
  mkdir "$work/cuda" "$work/files"
  ln -s "$CARGO_TARGET_DIR/release/libcuda_lab.so" "$work/cuda/libcuda.so.1"
  if [ "${program[0]}" = burn ]; then
    [ -e "$burn" ] || scripts/setup --no-lab --foreign
    gcc -O1 -Wall -Wextra -Werror -shared -fPIC -o "$work/files/managed.so" lab/programs/managed.c
  fi
}

# train ITERATIONS [VARIABLE=VALUE...]: natively.
train() {
  local iterations=$1
  shift
  if [ "${program[0]}" = burn ]; then
    # Its pools have pages of a quarter of the GPU's memory.
    env LD_LIBRARY_PATH="$work/cuda:$burn/site/nvidia/cuda_nvrtc/lib" CUDA_PATH="$burn/site/nvidia/cuda_runtime" LD_PRELOAD="$work/files/managed.so" \
      CUDA_LAB_MEMORY_MIB="$gpu_mib" "$@" "$burn/bin/burn-train" "$iterations" "${program[@]:1}"
    return
  fi
  env LD_LIBRARY_PATH="$work/cuda" PYTHONPATH="$tinygrad" DEV=CUDA:PTX PARALLEL=0 CACHEDB="$work/cache" JIT=2 "$@" \
    python3 lab/programs/train.py "${program[@]}" --managed --iterations "$iterations"
}

# add_training ITERATIONS: has the guest train for so many.
add_training() {
  if [ "${program[0]}" = burn ]; then
    echo "$1 ${program[*]:1}" >"$work/files/program_options"
    tar -c -C "$burn/site/nvidia/cuda_runtime" -f "$work/files/include.tar" include
    cp "$(gcc -print-file-name=libstdc++.so.6)" "$work/files" # which NVRTC needs
    local file
    for file in "$burn"/bin/burn-train "$burn"/site/nvidia/cuda_nvrtc/lib/libnvrtc{,-builtins}.so.*; do added+=(--add "$file"); done
  else
    echo "${program[*]} --managed --iterations $1" >"$work/files/program_options"
    added+=(--add lab/programs/train.py)
  fi
}
