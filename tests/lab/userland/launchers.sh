#!/bin/bash
# The helper in programs that Slurm and Podman start, by what the package has for them: their calls are shown, under their owner; a job and a
# container that do not ask for it run without it. Slurm's Epilog saves a report on a job, whose figures are the truth. Files: a package of
# uvmd, a CUDA program, the lab's CUDA for it, and the lab's runner.
# tests/scripts/launchers.sh runs it.
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
# shellcheck source=lab/vm/guest
. /lab/guest
evidence="/tmp/output /tmp/program /tmp/podman /var/log/slurm*.log"
HELPER=/usr/share/uvmd/helper
SLURM=/usr/share/uvmd/slurm
SPOOL=/var/spool/uvmd/jobs
WORKLOAD="/lab/files/uvm-workload --mib 4 --iterations 100 prefetch-back"
step() { echo "--- $*"; }

# is_recorded PID OWNER: uvmd shows launches of this process, which belongs to this owner.
is_recorded() {
  launches() { uvmctl ops "$1" --last 100 -o json >/tmp/output 2>&1 && grep -q '"op": *"launch"' /tmp/output; }
  within 20 "no calls of process $1 are shown" launches "$1"
  uvmctl ps --all -o json | tr -d ' \n' | sed 's/"pid":/\n"pid":/g' | grep "^\"pid\":$1," >/tmp/output
  grep -q "$2" /tmp/output || fail "process $1 does not belong to $2"
}
# is_unrecorded PID: without the helper.
is_unrecorded() {
  is_shown() { uvmctl ps --all -o name 2>/tmp/output | grep -q "$1"; }
  within 20 "process $1 is not shown" is_shown "$1"
  grep -q libcuda "/proc/$1/maps" || fail "process $1 has ended"
  ! grep -q libuvmd_helper "/proc/$1/maps" || fail "the helper is in process $1, which did not ask for it"
}
# Its process number, in /tmp/pid.
program() { pidof uvm-workload >/tmp/pid; }
waits_for_program() { within 120 "the program does not start" program; }
has_ended() { ! program; }

mkdir -p /run/cuda
cp /lab/files/libcuda_lab.so /run/cuda/libcuda.so.1
chmod 666 /dev/nvidia-uvm /dev/swgpu
apt-get install -y /lab/files/uvmd_*.deb >/tmp/output 2>&1 || fail "apt install"
install -D -m 644 /usr/share/uvmd/uvmd-recording.conf /etc/systemd/system/uvmd.service.d/40-recording.conf
systemctl daemon-reload
systemctl restart uvmd || fail "uvmd does not start with the drop-in"
within 60 "uvmd does not count" state_is counting

step "Slurm"
# The archive of the userland knows no owners.
install -d -o munge -g munge -m 700 /etc/munge /var/lib/munge /var/log/munge
dd if=/dev/urandom of=/etc/munge/munge.key bs=1 count=1024 2>/dev/null
chown munge: /etc/munge/munge.key
chmod 400 /etc/munge/munge.key
mkdir -p /etc/slurm /var/spool/slurmctld /var/spool/slurmd
echo CgroupMountpoint=/sys/fs/cgroup >/etc/slurm/cgroup.conf
cat >/etc/slurm/slurm.conf <<CONF
ClusterName=lab
SlurmctldHost=lab
SlurmUser=root
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldLogFile=/var/log/slurmctld.log
SlurmdLogFile=/var/log/slurmd.log
ProctrackType=proctrack/cgroup
TaskPlugin=task/none
TaskProlog=$HELPER/slurm-task-prolog
Prolog=$SLURM/prolog
Epilog=$SLURM/epilog
ReturnToService=2
$(slurmd -C | head -n 1)
PartitionName=all Nodes=lab Default=YES State=UP
CONF
systemctl reset-failed
systemctl restart munge slurmctld slurmd >/tmp/output 2>&1 || fail "Slurm does not start"
is_idle() { sinfo -h -o %T >/tmp/output 2>&1 && grep -qx idle /tmp/output; }
within 120 "the node of Slurm is not idle" is_idle

# A task of a user, with a library of its own that stays behind the helper.
: >/tmp/program
chmod 666 /tmp/program
submit() { sbatch --parsable --uid nobody --gid nogroup --chdir / --output /tmp/program --export="PATH=/usr/bin,LD_LIBRARY_PATH=/run/cuda$1" --wrap "srun $WORKLOAD" 2>/tmp/output || fail "sbatch"; }
job=$(submit ,UVMD_HELPER=record,LD_PRELOAD=libm.so.6)
waits_for_program
pid=$(cat /tmp/pid)
is_recorded "$pid" "\"slurm_job\":\"$job\""
tr '\0' '\n' <"/proc/$pid/environ" | grep -qx 'LD_PRELOAD=/usr/lib/uvmd/libuvmd_helper.so:libm.so.6' || fail "the task's own library is not behind the helper"
within 120 "the job does not end" has_ended
state_of_job() { scontrol show job "$1" | grep -q 'JobState=COMPLETED'; }
within 60 "the job fails" state_of_job "$job"
job=$(submit '')
waits_for_program
is_unrecorded "$(cat /tmp/pid)"
within 120 "the job does not end" has_ended
within 60 "the job fails" state_of_job "$job"

step "Slurm's Epilog reports on a job of two steps, of which the first thrashes"
# scenario NAME MIB STEPS: on a GPU of 64 MiB.
scenario() {
  printf 'name = "%s"\n[[process]]\nname = "%s"\nalloc = [{ name = "a", mib = %s }]\nsteps = [%s]\n' "$1" "$1" "$2" "$3" >"/tmp/$1.toml"
}
scenario thrashes 96 '{ cpu_write = "a", stride = "4 KiB" }, { repeat = 20, steps = [{ gpu_read = "a", stride = "4 KiB" }, { sleep_ms = 250 }] }'
scenario fits 16 '{ cpu_write = "a" }, { gpu_read = "a" }, { sleep_ms = 3000 }'
install -D -m 644 $SLURM/partition-example.toml /etc/uvmd/slurm.d/partition-all.toml
runs() { echo "srun /lab/files/lab-runner run /tmp/$1.toml --once --no-uvmd --report /tmp/$1.json"; }
job=$(sbatch --parsable --job-name two-steps --chdir / --output /tmp/program --export=PATH=/usr/bin --wrap "$(runs thrashes) && $(runs fits)" 2>/tmp/output) || fail "sbatch"
has_override() { uvmctl policy show >/tmp/output 2>&1 && grep -q "slurm-$job" /tmp/output; }
within 60 "Slurm's Prolog has made no override" has_override
within 400 "the job of two steps fails" state_of_job "$job"
is_saved() { ls -l $SPOOL >/tmp/output 2>&1 && [ -s "$SPOOL/$job.lab.json" ]; }
within 60 "Slurm's Epilog has saved no report" is_saved
has_no_override() { ! has_override; }
within 60 "Slurm's Epilog has left the override" has_no_override
uvmctl job report "$job" --spool $SPOOL | tee /tmp/output || fail "no report is read"
tr -d ' \n' <"$SPOOL/$job.lab.json" >/tmp/saved
# of_step STEP PATTERN: what the pattern's group is in the step's report.
of_step() { sed 's/"step":/\n&/g' /tmp/saved | sed -n "s/^\"step\":\"$1\",[^{}]*$2.*/\1/p"; }
number=0
for name in thrashes fits; do
  cp /tmp/$name.json /tmp/truth.json
  counted() { of_step $number "\"$1\":\([0-9]*\)"; }
  are_exact bytes_htod evicted_bytes
  number=$((number + 1))
done
of_step 0 '"verdict_seconds":{\([^}]*\)}' | grep -q '"capacity_thrash":[1-9]' || fail "no thrashing is reported of step 0"
! of_step 1 '"verdict_seconds":{\([^}]*\)}' | grep -q capacity_thrash || fail "thrashing is reported of step 1"
grep -q '"worst_verdict_step":"0"' /tmp/saved || fail "the worst verdict is of another step"
grep -q '"peak_oversubscription_ratio":1\.5,' /tmp/saved || fail "the peak is not 96 MiB of 64 MiB"
# A minute later it is the same.
sleep 60
uvmctl job report "$job" -o json | tr -d ' \n' | grep -o '"total":{[^}]*}' >/tmp/output || fail "no report from uvmd"
grep -o '"total":{[^}]*}' /tmp/saved | cmp - /tmp/output || fail "the report is another one a minute later"
systemctl stop slurmd slurmctld munge

step "Podman, by a specification of CDI"
install -D -m 644 $HELPER/cdi.json /etc/cdi/uvmd-helper.json
# The guest's root is one that nothing can be mounted over.
printf '[engine]\nno_pivot_root = true\n[containers]\ndefault_ulimits = []\n' >/etc/containers/containers.conf
# What Podman's units have made at the boot is of another driver of storage.
rm -rf /var/lib/containers
printf '[storage]\ndriver = "vfs"\nrunroot = "/run/containers"\ngraphroot = "/var/lib/containers"\n' >/etc/containers/storage.conf
root=/opt/container
mkdir -p $root/cuda $root/usr/lib/uvmd
for file in /lab/files/uvm-workload /run/cuda/libcuda.so.1; do
  { echo "$file" && ldd "$file" | grep -oE '/[^ ]+'; } | xargs cp -L --parents -t $root
done
# The words of the command.
# shellcheck disable=SC2086
run_container() {
  podman run --rm --network none --device /dev/nvidia-uvm --device /dev/swgpu "$@" --env LD_LIBRARY_PATH=/run/cuda --rootfs $root $WORKLOAD \
    >/tmp/podman 2>&1 &
  container=$!
}
run_container --device uvmd/helper=record
waits_for_program
is_recorded "$(cat /tmp/pid)" '"container":"[0-9a-f]\{64\}'
wait $container || fail "the container fails"
run_container
waits_for_program
is_unrecorded "$(cat /tmp/pid)"
wait $container || fail "the container fails without the helper"
echo "ok"
