#!/bin/bash
# Alerts fire once, and panels have a value in the state that they are for and none without it; NEVER has the other panels. Files: a package of uvmd,
# tests/lab/userland/monitoring, panels.tsv of tests/scripts/panels.py. tests/scripts/monitoring.sh runs it.
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
# shellcheck source=lab/vm/guest
. /lab/guest
# shellcheck source=tests/lab/userland/monitoring
. /lab/files/monitoring
evidence=/tmp/output
CONF=/etc/uvmd/conf.d
STATE=/var/lib/uvmd
mkdir -p $CONF /etc/systemd/system/uvmd.service.d

# configure NAME TEXT: a fragment of the configuration, in effect.
configure() {
  printf '%s\n' "$2" >"$CONF/$1.toml"
  systemctl restart uvmd || fail "uvmd does not start with $1"
  within 60 "uvmd does not count with $1" state_is counting
}
drop_in() {
  printf '[Service]\n%s\n' "$2" >"/etc/systemd/system/uvmd.service.d/$1.conf"
  systemctl daemon-reload
}
# with_controllers CGROUP: with the limits of memory, in a folder that is made if missing.
with_controllers() {
  local parent=/sys/fs/cgroup part parts
  mkdir -p "$1"
  IFS=/ read -ra parts <<<"${1#"$parent"/}"
  for part in "${parts[@]}"; do
    echo +memory >"$parent/cgroup.subtree_control" || fail "no limits of memory in $parent"
    parent=$parent/$part
  done
}
remove() {
  rm -f "$@"
  systemctl daemon-reload
}

# Panels of a node on which nothing happens; of one where a pod and a job thrash; where uvmd acts; and after rollbacks.
ALWAYS=(
  uvm-fleet/nodes_by_state uvm-node/counting uvm-owner/pod
  uvmd/states uvmd/configurations uvmd/cpu_highest uvmd/cpu_median uvmd/memory_highest uvmd/memory_median
  uvmd/snapshot_duration uvmd/scrape_duration uvmd/requests uvmd/nodes_cpu uvmd/nodes_memory uvmd/nodes_reading_age uvmd/builds
)
# GPUs are known from their first use on.
THRASHING=(
  uvm-node/{gpus_memory,memory,dcgm_utilization,dcgm_dram_active,dcgm_pcie_rx,dcgm_pcie_tx}
  uvm-fleet/{thrashing_gpus,oversubscribed_gpus,refetched_share,alerts,processes_by_verdict,oversubscription,gpus_thrashing,gpus_refetched_share}
  uvm-fleet/{gpus_fault_handler,gpus_batch_duration,gpus_oversubscription,owners_thrashing,owners_refetched,owners_evicted,owners_induced,pairs,alerts_firing}
  uvm-node/{gpus_used,gpus_resident,gpus_managed,verdicts,pairs,used,resident,managed,migrated_htod,migrated_dtoh,refetched_share,evictions,copy_size}
  uvm-node/{gpu_faults,batch_entries,fault_handler,batch_duration_p50,batch_duration_p99,batch_durations,dcgm_fault_handler,dcgm_htod,dcgm_dtoh}
  uvm-owner/{processes,thrashing,refetched,taken,verdicts,managed,resident,evictors,victims,fetched_refetched,migrated,gpu_faults}
  uvm-policies/{link,thrashing}
)
PINGPONG=(uvm-node/{reclaimed_share,cpu_faults} uvm-owner/{fetched_first,fetched_reclaimed,cpu_faults})
ACTING=(uvm-policies/{acting,in_force,decisions,policies_done} uvm-node/tool_calls)
DENIED=(uvm-policies/{budget_denied,policies_denied})
MIGRATING=(uvm-policies/{actions,policies_migrated,budget_bytes})
ROLLBACK=(uvm-policies/{rollbacks,rollbacks_total,policies_rollbacks})

ON_TWO_GPUS=(uvm-node/{migrated_dtod,api_calls})

# Panels without a state here that gives them a value.
# Lines of the journal are dropped once 4,096 wait for a disk that hangs, and events of a stream once its client has missed 1,024.
NEVER=(uvmd/{journal_dropped,stream_dropped})

step "no target"
# NVML, as a node with a GPU has it; uvmd's unit admits the devices of NVIDIA alone.
cp /lab/nvml/libnvidia-ml.so.1 /usr/lib/x86_64-linux-gnu/
chmod 666 /dev/swgpu
# A guest that is busy with faults starts uvmd in minutes.
drop_in nvml $'DeviceAllow=/dev/swgpu rw\nTimeoutStartSec=600'
apt-get install -y /lab/files/uvmd_*.deb >/tmp/output 2>&1 || fail "apt install"
within 60 "uvmd does not count" state_is counting
start_monitoring 's/job_name: uvmd/job_name: another/; s/9477/1/'
fires UvmdAbsent
use_target ''
within 60 "Prometheus does not scrape uvmd" has_series 'up{job="uvmd"} == 1'
resolves UvmdAbsent

step "idle: counting, and no program"
sleep 20 # as long as the ranges of the panels
no_alert_fires
panels_speak "${ALWAYS[@]}"
panels_are_silent_but "${ALWAYS[@]}"
no_alert_fires

step "a pod and a job thrash"
thrash
fires UvmOwnerThrashing "pod_uid=\"$POD\""
fires UvmOwnerIsVictim "pod_uid=\"$POD\"" "evictor=\"$JOB\""
fires UvmGpuThrashing
fires UvmFaultHandlerSaturated
fires UvmFaultLatencyHigh
panels_speak "${THRASHING[@]}"
sysctl -q kernel.bpf_stats_enabled=1
panels_speak uvmd/{probes_highest,probes_median}
sysctl -q kernel.bpf_stats_enabled=0
configure records $'[records]\nmax_per_second = 1'
fires UvmdBlockRecordsMissing
panels_speak uvmd/records_dropped
remove $CONF/records.toml
end_programs

step "managed memory grows beyond the GPU"
# They hold memory and hardly use it: a guest that is busy with faults starts programs so slowly that nothing grows.
for number in $(seq 16); do
  cat >/tmp/growth"$number".toml <<SCENARIO
name = "growth$number"
[[process]]
name = "growth$number"
alloc = [{ name = "model", mib = 16 }]
steps = [{ repeat_for_ms = 600000, steps = [{ gpu_write = "model", stride = "2 MiB" }, { sleep_ms = 2000 }] }]
SCENARIO
  run_in "$job_cgroup" /tmp/growth"$number".toml
  becomes 5 has_alert UvmOversubscriptionGrowing && break
done
fires UvmOversubscriptionGrowing
end_programs

step "acting"
install -m 644 /usr/share/uvmd/uvmd-acting.conf /etc/systemd/system/uvmd.service.d/50-acting.conf
systemctl daemon-reload
configure acting $'[policy]\nenabled = true\nhost_reserve = "64 MiB"'
override() { uvmctl policy set --id "$1" --executable "$1" --mode act --policy "$2" "${@:3}" >/tmp/output 2>&1 || fail "policy set $*"; }
override pingpong ping-pong
panels_speak_beside "$pod_cgroup" /tmp/pingpong.toml "${PINGPONG[@]}" "${ACTING[@]}"
sed '/^\[\[target/,$d' /lab/files/streaming.toml >/tmp/streaming.toml
override streaming stream
panels_speak_beside "$job_cgroup" /tmp/streaming.toml "${MIGRATING[@]}"
end_programs
# At a rate that the walk exceeds: a part of the prefetches is denied.
override streaming stream --bytes-per-second 8MiB
panels_speak_beside "$job_cgroup" /tmp/streaming.toml "${DENIED[@]}"
run_in "$pod_cgroup" /tmp/pingpong.toml
override pingpong harmful
fires UvmdPolicyRolledBackRepeatedly
panels_speak "${ROLLBACK[@]}"
touch /run/uvmd/policy.off
fires UvmdActingSwitchedOff
rm /run/uvmd/policy.off
end_programs
# No actor starts: one in the pod may get the whole of it killed, and beside uvmd there is no room for a process.
with_controllers "$pod_cgroup"
echo 1 >"$pod_cgroup/memory.oom.group"
systemctl set-property --runtime uvmd TasksMax="$(systemctl show uvmd -P TasksCurrent)" || fail "TasksMax"
override pingpong ping-pong
run_in "$pod_cgroup" /tmp/pingpong.toml
panels_speak uvm-policies/{policies_failed,actions_without_effect}
end_programs
systemctl set-property --runtime uvmd TasksMax=infinity || fail "TasksMax"
echo 0 >"$pod_cgroup/memory.oom.group"

step "state folder and audit log on a full disk"
systemctl stop uvmd.socket uvmd || fail "stop"
mount -t tmpfs -o size=256k nodev $STATE
systemctl start uvmd.socket uvmd || fail "start"
within 60 "uvmd does not count" state_is counting
override pingpong ping-pong
dd if=/dev/zero of=$STATE/fill bs=1k 2>/dev/null
# More advice than lines fit in the rest of the journal's page.
cat >/tmp/pingpongs.toml <<'SCENARIO'
name = "pingpongs"
[[process]]
name = "pingpong"
alloc = [{ name = "a", mib = 2 }, { name = "b", mib = 2 }, { name = "c", mib = 2 }]
steps = [{ repeat_for_ms = 600000, steps = [
    { cpu_write = "a" }, { cpu_write = "b" }, { cpu_write = "c" },
    { gpu_read = "a", access_rate = 32 }, { gpu_read = "b", access_rate = 32 }, { gpu_read = "c", access_rate = 32 }, { sleep_ms = 50 },
] }]
SCENARIO
for _ in 1 2 3 4 5 6; do run_in "$pod_cgroup" /tmp/pingpongs.toml; done
fires UvmdAdviceJournalNotWritable
panels_speak uvm-policies/journal_writable
# What is left of the audit log's last page; then decisions are dropped.
for _ in $(seq 60); do uvmctl policy set --id fill --executable nothing --mode act >/tmp/output 2>&1 || break; done
end_programs
run_in "$pod_cgroup" /tmp/pingpong.toml
fires UvmdAuditLinesDropped
panels_speak uvmd/audit_dropped
uvmctl policy off >/tmp/output 2>&1
fires UvmdSwitchNotPersisted
fires UvmdWarningActive 'warning="audit_unavailable"'
panels_speak uvm-policies/persist_pending uvmd/warnings
rm $STATE/fill
resolves UvmdSwitchNotPersisted
end_programs
systemctl stop uvmd.socket uvmd || fail "stop"
umount $STATE
echo '{"version":99,"boot":"later"}' >>$STATE/advice.journal
systemctl start uvmd.socket uvmd || fail "start"
fires UvmdAdviceJournalUnrecognised
panels_speak uvm-policies/journal_unrecognised

step "invalid configuration and overrides"
echo 'interval = 7' >$CONF/invalid.toml
echo 'mode = 7' >/etc/uvmd/overrides.toml
systemctl reload uvmd
fires UvmdConfigurationNotReloaded
fires UvmdOverridesInvalid
panels_speak uvmd/not_reloaded uvm-policies/overrides
remove $CONF/invalid.toml /etc/uvmd/overrides.toml $CONF/acting.toml /etc/systemd/system/uvmd.service.d/50-acting.conf
systemctl restart uvmd

step "a hostile user"
chmod 666 /dev/nvidia-uvm /dev/nvidia-uvm-tools
lab-runner attack crowd >/tmp/attack 2>&1 &
attack=$!
# So many that the user is at its quota: what another process of that user does is dropped.
is_at_its_quota() { [ "$(grep -c '^attack' /tmp/attack)" = 17 ]; }
within 120 "the attack does not begin" is_at_its_quota
setpriv --reuid 65534 --regid 65534 --clear-groups lab-runner loop /tmp/pingpong.toml >/tmp/loop-user 2>&1 &
runners=$!
fires UvmdDegraded 'reason="quota_reached"'
fires UvmdVaSpacesDropped 'reason="spaces_full"'
fires UvmdEventsDropped 'reason="unknown_va_space"'
panels_speak uvmd/degraded uvmd/events_dropped uvmd/nodes_dropped
end_programs
kill -9 $attack
wait $attack 2>/dev/null

step "clients beyond limits"
curl -so /dev/null -H 'Authorization: Bearer wrong-wrong-wrong-wrong' http://127.0.0.1:9477/api/v1/status
panels_speak uvmd/auth_failures
# More streams than a client may have, again and again, as a rate forgets within its range; the connections of those denied are closed after 3 s
# without a request. In parallel, curl shows its progress even with -s.
touch /tmp/streaming
while [ -e /tmp/streaming ]; do
  curl -sN --max-time 10 --parallel --parallel-immediate --parallel-max 30 'http://127.0.0.1:9477/api/v1/events#[1-30]'
done >/dev/null 2>&1 &
streams=$!
panels_speak uvmd/{rejected,closed}
rm /tmp/streaming
wait $streams

step "log on a full disk"
mount -t tmpfs -o size=4k,mode=750,uid=uvmd,gid=uvmd nodev /var/log/uvmd
configure log $'[log]\nfile = "/var/log/uvmd/uvmd.log"\nfilter = "debug"'
# A line each.
for _ in $(seq 100); do printf 'nonsense\r\n\r\n' >/dev/tcp/127.0.0.1/9477; done
panels_speak uvmd/log_dropped
remove $CONF/log.toml
systemctl restart uvmd || fail "restart"
within 60 "uvmd does not count" state_is counting
umount /var/log/uvmd

step "sources that disagree"
# Too slow for a verdict, with which a process is not checked.
cat >/tmp/slow.toml <<'SCENARIO'
name = "slow"
[[process]]
name = "slow"
alloc = [{ name = "a", size = "64 KiB" }]
steps = [{ cpu_write = "a", length = "4 KiB" }, { sleep_ms = 400 }, { gpu_write = "a", length = "4 KiB" }, { sleep_ms = 400 }]
SCENARIO
install -m 644 /usr/share/uvmd/uvmd-tools.conf /etc/systemd/system/uvmd.service.d/50-tools.conf
systemctl daemon-reload
configure crosscheck $'[collector]\ncrosscheck = "sampled"'
run_in "$pod_cgroup" /tmp/slow.toml
is_compared() { curl -s http://127.0.0.1:9477/metrics | grep -q '^uvmd_crosscheck_comparisons_total{.*result="agreed"} [1-9]'; }
within 120 "nothing is compared" is_compared
# The kernel no longer runs the probes; the driver counts on.
echo 0 >/sys/kernel/debug/kprobes/enabled || fail "the probes cannot be switched off"
fires UvmdSourcesDisagree
echo 1 >/sys/kernel/debug/kprobes/enabled
end_programs
remove $CONF/crosscheck.toml /etc/systemd/system/uvmd.service.d/50-tools.conf
systemctl restart uvmd
within 60 "uvmd does not count" state_is counting

step "restarts, and another clock"
for _ in 1 2 3 4 5; do
  systemctl restart uvmd || fail "restart"
  within 60 "uvmd does not count" state_is counting
  sleep 2
done
fires UvmdRestarting
panels_speak uvmd/nodes_restarts
drop_in clock "Environment=LD_PRELOAD=/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1 FAKETIME=-120s FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME_DISABLE_SHM=1"
systemctl restart uvmd || fail "restart"
fires UvmdReadingsStale
remove /etc/systemd/system/uvmd.service.d/clock.conf
systemctl restart uvmd
within 60 "uvmd does not count" state_is counting

step "no driver, and an unknown one"
# uvmd knows a GPU from its first use on.
run_in "$pod_cgroup" /tmp/pingpong.toml
panels_speak uvm-node/gpus_memory
end_programs
rmmod nvidia-uvm nvidia || fail "the driver does not unload"
fires UvmdWaiting
load_driver || fail "the driver does not load"
echo 600.10 >/tmp/version
mount --bind /tmp/version /sys/module/nvidia_uvm/version
systemctl restart uvmd
fires UvmdDriverRefused
umount /sys/module/nvidia_uvm/version
systemctl restart uvmd
within 60 "uvmd does not count" state_is counting

step "two GPUs with NVLink, and pages that CPU and GPU contend for"
systemctl stop uvmd.socket uvmd || fail "stop"
rmmod nvidia-uvm nvidia || fail "the driver does not unload"
# Under emulation nothing happens within the 500 microseconds that the driver looks back by default.
LAB_SWGPU_PARAMETERS="gpus=2 nvlink=1" LAB_UVM_PARAMETERS="uvm_perf_thrashing_lapse_usec=1000000" load_driver || fail "the driver does not load"
systemctl start uvmd.socket uvmd || fail "start"
within 60 "uvmd does not count" state_is counting
run_in "$pod_cgroup" /lab/scenarios/nvlink.toml
panels_speak "${ON_TWO_GPUS[@]}"
end_programs
run_in "$pod_cgroup" /lab/scenarios/throttle.toml
panels_speak uvm-node/throttled
end_programs

step "no uvmd"
systemctl stop uvmd.socket uvmd
fires UvmdDown
panels_speak uvm-fleet/nodes_down uvmd/down

step "all alerts and panels"
# The first takes three nodes, the second a driver that has to be loaded again (tests/lab/fatal_error.sh), the third a host without memory, the fourth
# hours of growth: promtool alone tests their rules.
all_alerts_fired UvmdDriverRefusedAcrossFleet UvmDriverFatalError UvmHostMemoryLow UvmOwnerMemoryGrowing
all_panels_spoke "${NEVER[@]}"
[ ! -s $MISSING ] || fail "$(wc -l <$MISSING) things are missing"
echo "ok"
