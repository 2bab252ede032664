#!/bin/bash
# From the package to an alert: apt install, a scrape by Prometheus, and a pod that thrashes has its alert in Alertmanager. Files: a package of uvmd,
# tests/lab/userland/monitoring. tests/scripts/monitoring.sh runs it.
set -u
# shellcheck source=lab/vm/expect
. /lab/expect
# shellcheck source=tests/lab/userland/monitoring
. /lab/files/monitoring
evidence="/tmp/output /tmp/loop-victim.toml /tmp/loop-thrasher.toml"

apt-get install -y /lab/files/uvmd_*.deb >/tmp/output 2>&1 || fail "apt install"
within 60 "uvmd does not count" state_is counting
start_monitoring ''
within 30 "Prometheus does not scrape uvmd" has_series 'up{job="uvmd"} == 1'

thrash
fires UvmOwnerThrashing "pod_uid=\"$POD\"" 'verdict="capacity_thrash"'
fires UvmOwnerIsVictim "pod_uid=\"$POD\"" 'evictor_kind="job"' "evictor=\"$JOB\""

# What uvmd costs beside this; times mean nothing here.
figure() { query "$1" && sed -n 's/.*"value":\[[^,]*,"\([^"]*\)".*/\1/p' /tmp/output; }
echo "series of a scrape: $(figure 'scrape_samples_scraped{job="uvmd"}')"
echo "bytes of a scrape: $(curl -fsS http://127.0.0.1:9477/metrics | wc -c)"
echo "resident memory of uvmd, bytes: $(figure process_resident_memory_bytes)"
echo "runs of probes: $(figure 'sum(uvmd_probe_hits_total)'), dropped events: $(figure 'sum(uvmd_events_dropped_total)')"
end_programs
[ ! -s $MISSING ] || fail "see above"
echo "ok"
