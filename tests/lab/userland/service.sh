#!/bin/bash
# The package on a whole Debian with systemd: installed, counting, killed by the watchdog, reloaded, reading calls, upgraded while it acts,
# purged. Files: two builds of the package, /lab/files/uvmd_*-1_*.deb and uvmd_*-2_*.deb, a CUDA program, and the lab's CUDA for it.
# tests/scripts/service.sh runs it.
# set: LAB_DRIVER=no
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
# shellcheck source=lab/vm/guest
. /lab/guest
# shellcheck source=lab/vm/link
. /lab/link
evidence="/tmp/output /tmp/loop /tmp/status"
STATE=/var/lib/uvmd

fails_with_unit() {
  systemctl status --no-pager -l uvmd >>/tmp/output 2>&1
  journalctl --no-pager -u uvmd -n 40 >>/tmp/output 2>&1
  fail "$1"
}
# restarted WHAT: with changed drop-ins.
restarted() {
  systemctl daemon-reload
  systemctl restart uvmd || fails_with_unit "$1"
}
step() { echo "--- $*"; }
property() { systemctl show -P "$1" uvmd; }
is_active() { systemctl is-active --quiet uvmd; }
responds() { curl -fsS -o /tmp/output "http://127.0.0.1:9477$1" 2>/dev/null; }
status_says() { property StatusText | grep -q "$1"; }
counting() { within 60 "uvmd does not count" state_is counting; }
is_another_process() { now=$(property MainPID) && [ "$now" != 0 ] && [ "$now" != "$1" ]; }
journal() { grep -c '"advice"' $STATE/advice.journal 2>/dev/null || true; }
kprobes() { wc -l </sys/kernel/debug/kprobes/list; }
apt_install() { apt-get -o Dpkg::Options::=--force-confold install -y --allow-downgrades "$1" >/tmp/output 2>&1 || fails_with_unit "apt install $1"; }

step "without a driver: installed, waiting, and saying so"
mount -t debugfs nodev /sys/kernel/debug 2>/dev/null || true
apt_install /lab/files/uvmd_*-1_*.deb
within 30 "uvmd is not started by the installation" is_active
within 10 "systemctl status does not say what is missing" status_says '^waiting: .*nvidia-uvm'
[ "$(property User)" = uvmd ] || fail "uvmd observes as $(property User)"
[ "$(stat -c %U "/proc/$(property MainPID)")" = uvmd ] || fail "the process is not that of uvmd's user"
! responds /readyz || fail "readyz without a driver"
responds /livez || fail "no livez"
uvmctl status --check >/tmp/output 2>&1
[ $? = 4 ] || fail "status --check without a driver"
systemctl is-enabled --quiet uvmd uvmd.socket || fail "not enabled"

step "with the driver: a scenario counted"
load_driver || fail "the driver does not load"
counting
responds /readyz || fail "no readyz"
within 10 "systemctl status does not show the driver" status_says '^counting, driver [0-9]'
lab-runner run /lab/scenarios/oversubscribe.toml --once --report /run/report.json >/tmp/output 2>&1 || fail "uvmd's figures are not the driver's"
grep -q '"verdict": *"pass"' /run/report.json || fail "no verdict of the comparison"
uvmctl ps --all >/tmp/output || fail "ps"
grep -q MANAGED /tmp/output || fail "ps shows nothing"
# What needs CAP_SYS_PTRACE, as another user.
uvmctl ps --all -o json | grep -q '"managed_bytes": *[0-9]' || fail "managed memory cannot be read"

step "a stopped daemon is killed by the watchdog, and counts again"
mkdir -p /etc/systemd/system/uvmd.service.d
printf '[Service]\nWatchdogSec=6s\n' >/etc/systemd/system/uvmd.service.d/soon.conf
restarted "restart"
counting
pid=$(property MainPID)
sleep 20
[ "$(property MainPID)" = "$pid" ] || fails_with_unit "the watchdog kills a uvmd that works"
kill -STOP "$pid"
within 60 "the watchdog does not kill a stopped uvmd" is_another_process "$pid"
counting
journalctl --no-pager -u uvmd | grep -q 'Watchdog timeout' || fail "it was not the watchdog"
rm /etc/systemd/system/uvmd.service.d/soon.conf
systemctl daemon-reload

step "reload"
pid=$(property MainPID)
mkdir -p /etc/uvmd/conf.d
printf '[log]\nfilter = "debug"\n' >/etc/uvmd/conf.d/10-debug.toml
systemctl reload uvmd || fails_with_unit "reload"
journalctl --no-pager -u uvmd | grep -q 'reloaded .*log.filter' || fails_with_unit "the configuration is not read again"
[ "$(property MainPID)" = "$pid" ] || fail "the reload was a restart"
printf '[log]\nfilter = 7\n' >/etc/uvmd/conf.d/10-debug.toml
systemctl reload uvmd
within 10 "systemctl status does not show the mistake" status_says 'not reloaded'
rm /etc/uvmd/conf.d/10-debug.toml
systemctl reload uvmd || fail "reload"
shows_no_mistake() { ! status_says 'not reloaded'; }
within 10 "systemctl status shows a mistake that is gone" shows_no_mistake

step "calls of a unit with the helper, by a drop-in of the unit"
mkdir -p /run/cuda /run/systemd/system/trainer.service.d
cp /lab/files/libcuda_lab.so /run/cuda/libcuda.so.1
cat >/run/systemd/system/trainer.service <<'UNIT'
[Service]
User=nobody
Environment=LD_LIBRARY_PATH=/run/cuda
ExecStart=/lab/files/uvm-workload --mib 4 --iterations 100 prefetch-back
RemainAfterExit=yes
UNIT
chmod 666 /dev/nvidia-uvm /dev/swgpu
cp /usr/share/uvmd/helper/systemd.conf /run/systemd/system/trainer.service.d/uvmd-helper.conf
install -D -m 644 /usr/share/uvmd/uvmd-recording.conf /etc/systemd/system/uvmd.service.d/40-recording.conf
restarted "restart with the drop-in for recordings"
counting
systemctl start trainer || fail "the unit does not start"
trainer=$(systemctl show -P ExecMainPID trainer)
launches() { uvmctl ops "$trainer" --last 100 -o json >/tmp/output 2>&1 && grep -q '"op": *"launch"' /tmp/output; }
within 20 "the calls of the unit are not shown" launches
has_ended() { [ "$(systemctl show -P SubState trainer)" != running ]; }
within 120 "the unit does not end" has_ended
[ "$(systemctl show -P ExecMainStatus trainer)" = 0 ] || fail "its program fails"
systemctl stop trainer
rm -r /run/systemd/system/trainer.service /run/systemd/system/trainer.service.d /etc/systemd/system/uvmd.service.d/40-recording.conf
restarted "restart without the drop-in for recordings"
counting

step "acting, by the drop-in"
cat >/tmp/work.toml <<'SCENARIO'
name = "work"
[[process]]
name = "pingpong"
alloc = [{ name = "a", mib = 8 }]
steps = [{ cpu_write = "a" }, { gpu_read = "a", access_rate = 32 }, { sleep_ms = 50 }]
SCENARIO
install -D -m 644 /usr/share/uvmd/uvmd-acting.conf /etc/systemd/system/uvmd.service.d/50-acting.conf
printf '[policy]\nenabled = true\nhost_reserve = "64 MiB"\n' >/etc/uvmd/conf.d/20-acting.toml
restarted "restart with the drop-in"
counting
[ "$(stat -c %U "/proc/$(property MainPID)")" = root ] || fail "uvmd does not act as root"
start_program() {
  lab-runner loop /tmp/work.toml >/tmp/loop 2>&1 &
  runner=$!
}
end_program() {
  kill -TERM $runner
  wait $runner || fail "the program's data is not right"
}
start_program
uvmctl policy set --executable pingpong --mode act --policy ping-pong >/tmp/output 2>&1 || fail "policy set"
within 20 "the program's memory is not advised" is_accessed
[ "$(journal)" -gt 0 ] || fail "the advice is not in the journal"

step "an upgrade with advice in force"
pid=$(property MainPID)
apt_install /lab/files/uvmd_*-2_*.deb
dpkg-query -W -f '${Version}' uvmd | grep -q -- '-2$' || fail "the second build is not installed"
is_another_process "$pid" || fail "the upgrade did not restart uvmd"
counting
journalctl --no-pager -u uvmd _PID="$pid" | grep -q 'stopped' || fails_with_unit "the first build did not stop cleanly"
! journalctl --no-pager -u uvmd _PID="$(property MainPID)" | grep -q 'advice of a former run' || fail "the first build left advice"
within 10 "the advice of the first build is in force" is_copied
uvmctl policy show -o json >/tmp/output
grep -q pingpong /tmp/output || fail "the override is lost"
# A program that ran before uvmd counted is left alone: its own advice is not known.
end_program
start_program
within 20 "the second build does not act" is_accessed
[ -e /etc/systemd/system/uvmd.service.d/50-acting.conf ] || fail "the drop-in is lost"

step "the switch outlives a stop; a stop leaves nothing in force"
touch /run/uvmd/policy.off
within 20 "the switch withdraws nothing" is_copied
# With its socket, as a connection would start it again.
systemctl stop uvmd.socket uvmd || fail "stop"
# Withdrawn advice is a line of the journal, too: uvmd itself says what is in force by it.
uvmd --withdraw >/tmp/output 2>&1 || fail "advice cannot be withdrawn after a stop"
! grep -q 'withdrawn: ' /tmp/output || fail "advice is in force after a stop"
[ -e /run/uvmd/policy.off ] || fail "the switch is gone"
[ "$(kprobes)" = 0 ] || fail "probes are left: $(kprobes)"
systemctl start uvmd || fail "start"
counting
uvmctl policy show >/tmp/output 2>&1
grep -qi 'off' /tmp/output || fail "the switch is not in effect after a restart"
end_program

step "a purge leaves nothing"
apt-get purge -y uvmd >/tmp/output 2>&1 || fail "purge"
for left in /etc/uvmd /var/lib/uvmd /var/log/uvmd /run/uvmd /usr/bin/uvmd /usr/bin/uvmctl /usr/share/uvmd /usr/share/doc/uvmd /etc/logrotate.d/uvmd \
  /usr/lib/systemd/system/uvmd.service /etc/systemd/system/uvmd.service.d /etc/systemd/system/multi-user.target.wants/uvmd.service \
  /etc/systemd/system/sockets.target.wants/uvmd.socket; do
  if [ -e "$left" ] || [ -L "$left" ]; then fail "$left is left"; fi
done
! getent passwd uvmd >/dev/null || fail "the user is left"
! systemctl cat uvmd >/dev/null 2>&1 || fail "systemd still knows the unit"
[ "$(kprobes)" = 0 ] || fail "probes are left"
echo "ok"
