#!/usr/bin/env bash
# The table of layouts is that of the driver sources that the lab has; a source that differs is found out.
# shellcheck source=scripts/lib.sh
source "$(dirname "$0")/../../scripts/lib.sh"
cd "$UVMD_ROOT"
command -v pahole >/dev/null || { echo "skipped: no pahole" && exit; }

# Every probed function is compared.
python3 - <<'PYTHON'
import re, sys
sys.dont_write_bytecode = True
sys.path.insert(0, "scripts/driver_types")
import facts
with open("collector/src/probes/table.rs", encoding="utf-8") as file:
    code = file.read().split("#[cfg(test)]")[0]
names = {name for group in re.findall(r'&\[((?:\s*"uvm_\w+",?)+)\s*\]', code) for name in re.findall(r'"(uvm_\w+)"', group)}
if not names or names - facts.FUNCTIONS.keys():
    sys.exit(f"scripts/driver_types/facts.py lacks {names - facts.FUNCTIONS.keys() or 'the functions of probes/table.rs'}")
PYTHON

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
source=
for driver in $(lab_versions driver); do
  [ -d "$(lab_driver_dir "$driver")/nvidia-uvm" ] || { echo "skipped: the source of $driver is not here" && continue; }
  source=$(lab_driver_dir "$driver")
  scripts/layouts "$source"
done
[ -n "$source" ] || exit 0

# expect STATUS LINE: of the changed copy.
expect() {
  local status=0 said
  said=$(scripts/layouts "$work/driver") || status=$?
  [ "$status" = "$1" ] || die "exit $status instead of $1: $said"
  grep -qxF "$2" <<<"$said" || die "no line '$2' in: $said"
}
mkdir -p "$work/driver/common"
cp -r "$source/nvidia-uvm" "$source/Kbuild" "$work/driver/"
cp -r "$source/common/inc" "$work/driver/common/"
uvm=$work/driver/nvidia-uvm
version=$(sed -n 's/.*NV_VERSION_STRING=\\"\([0-9.]*\).*/\1/p' "$work/driver/Kbuild")
family=$(scripts/layouts "$source" | sed -n '1s/.*: family \(.*\), by .*/\1/p')
sed -i "s/$version/999.1/" "$work/driver/Kbuild"
expect 0 "driver 999.1: in no family; $family is the most similar"
# A field more, another value, and a parameter less.
sed -i '/^struct uvm_gpu_struct/,/^{/s/^{/{ NvU64 added_by_test;/' "$uvm/uvm_gpu.h"
sed -i 's/^\( *\)UVM_PERF_EVENT_BLOCK_DESTROY = 0/\1ADDED_BY_TEST,\n\1UVM_PERF_EVENT_BLOCK_DESTROY/; s/^\( *\)UVM_PERF_EVENT_BLOCK_DESTROY,/\1ADDED_BY_TEST,\n&/' "$uvm/uvm_perf_events.h"
sed -i 's/^void uvm_tools_record_thrashing(uvm_va_space_t \*va_space,/void uvm_tools_record_thrashing(/' "$uvm/uvm_tools.c"
id=$({ scripts/layouts "$work/driver" || true; } | sed -n 's/^gpu.id: \([0-9]*\), by the table \([0-9]*\)$/\1 \2/p')
[ $((${id% *} - ${id#* })) = 8 ] || die "gpu.id did not move by 8: $id"
expect 1 "enum.UVM_PERF_EVENT_BLOCK_DESTROY: 1, by the table 0"
expect 1 "uvm_tools_record_thrashing(0): NvU64, by the table uvm_va_space_t *"
echo "layouts: changes of a source are found"
