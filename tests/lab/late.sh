#!/bin/sh
# where the tools count, a program that is older than uvmd is named, and one that begins while uvmd counts is found at once
# PROGRAMS: number of the latter
# set: LAB_UVMD=no
# clock: instructions
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
evidence="/tmp/run /tmp/late $UVMD_LOG /tmp/status /tmp/ps"
# A process's sum of a figure in uvmd.
counted() { figure_of "$name" "$1"; }
pid() { uvmctl ps --all -o json | tr -d ' \n' | sed 's/"pid":/\n"pid":/g' | sed -n "s/^\"pid\":\([0-9]*\),.*\"name\":\"$name\".*/\1/p" | head -1; }
is_listed() { [ -n "$(pid)" ]; }
# late: the states of processes that were counted late
late() { answers && tr -d '\n' </tmp/status | grep -o '"reason": *"attached_late"[^}]*' >/tmp/late; }

# scenario STEPS: of the program $name
scenario() {
  cat >/tmp/work.toml <<SCENARIO
name = "$name"
[[process]]
name = "$name"
alloc = [{ name = "a", mib = 64 }]
steps = [$1]
SCENARIO
}

name=older
scenario '{ gpu_write = "a" }, { sleep_ms = 15000 }, { gpu_read = "a" }, { sleep_ms = 1000 }'
lab-runner run /tmp/work.toml --once --no-uvmd >/tmp/run 2>&1 &
runner=$!
is_open() { [ "$(cat /sys/module/nvidia_uvm/refcnt)" -gt 0 ]; }
within 60 "the older program does not open the driver" is_open
sleep 2
start uvmd --set collector.source=tools --set collector.tools_level=counters
state_becomes counting
within 10 "the older program is not named" late
cat /tmp/late
grep -q "\"pid\": *$(pid)," /tmp/late || fail "its process is not among them"
wait "$runner" || fail "the run is not valid"

# --- programs that begin at once
number=0
while [ $number -lt "${PROGRAMS:-3}" ]; do
  number=$((number + 1)) name=soon$number
  scenario '{ gpu_write = "a" }, { cpu_write = "a" }, { gpu_write = "a" }, { sleep_ms = 1500 }'
  lab-runner run /tmp/work.toml --once --no-uvmd --report /tmp/truth.json >/tmp/run 2>&1 || fail "the run is not valid"
  within 5 "the program $number is not counted" is_listed
  echo "program $number: of $(truth fault_entries) faults $(counted fault_entries) are counted, of $(truth bytes_htod) bytes to the GPU $(counted bytes_htod)"
  ! late || ! grep "\"pid\": *$(pid)," /tmp/late || fail "the program $number is named, though uvmd found it at once"
done
stop_uvmd
timeout 5 pidof uvmd && fail "a holder is left"
echo "ok"
