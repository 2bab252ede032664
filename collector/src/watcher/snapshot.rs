//! Output: snapshots, heat maps and history.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use model::{
    Degradation, DegradedReason, DriverInfo, HeatMap, HeatRequest, HistoryRequest, Memory, ProcessId, Snapshot,
    SourceState, SourceStatus,
};

use super::{Counting, State, Watcher};
use crate::{clock, figures::Figures, identity::Processes};

/// Maximum of users with too many owners that have a sentence each.
const USERS_NAMED_MAX: usize = 8;

impl Watcher {
    /// Heat map of a process; `None` if it is unknown.
    pub(crate) fn heat(&self, request: &HeatRequest) -> Option<HeatMap> {
        let now_ns = clock::since_boot(&self.config.roots).map_or(0, clock::nanoseconds);
        self.ledger.heat(request, now_ns)
    }

    /// Current memory of a process; `None` if unknown.
    pub(crate) fn memory_of(&mut self, process: ProcessId) -> Option<Memory> {
        self.take_blocks();
        self.ledger.memory_of(process, clock::wall(&self.config.roots))
    }

    /// Stores a snapshot for [`Self::lately`]. For regular readings only.
    pub(crate) fn keep(&mut self, snapshot: &Snapshot) {
        self.history.take(snapshot, Instant::now());
    }

    /// Recent counts; `None` if unknown.
    pub(crate) fn lately(&self, request: &HistoryRequest) -> Option<model::History> {
        self.history.lately(request, Instant::now(), SystemTime::now())
    }

    /// Tenants at a limit, and data that the driver does not provide.
    fn degraded(&self, driver: Option<&DriverInfo>) -> Vec<Degradation> {
        let of_driver = driver.and_then(|driver| driver.residency_unavailable.clone()).map(|description| Degradation {
            reason: DegradedReason::ResidencyUnavailable,
            uid: None,
            user: None,
            pid: None,
            description,
        });
        let of_owners = self.ledger.users_at_quota().iter().take(USERS_NAMED_MAX).map(|uid| {
            let user = self.users.name(*uid);
            let who = user.as_ref().map_or_else(|| format!("uid {uid}"), |user| format!("user {user} (uid {uid})"));
            Degradation {
                reason: DegradedReason::OwnerQuotaReached,
                uid: Some(*uid),
                user,
                pid: None,
                description: format!(
                    "{who}: has {} units, containers and jobs listed, its limit; further ones are summed under other",
                    self.config.owners.user_max()
                ),
            }
        });
        let of_tenants = self.tenants.limits.degradations(|uid| self.users.name(uid));
        let of_source = match &self.state {
            State::Counting(counting) => counting.source.degradations(&|uid| self.users.name(uid)),
            _ => Vec::new(),
        };
        let disagreements = self.disagreements();
        let of_names = self.processes.degradation();
        of_source
            .into_iter()
            .chain(disagreements)
            .chain(of_tenants)
            .chain(of_owners)
            .chain(of_driver)
            .chain(of_names)
            .collect()
    }

    /// Snapshot of the current state.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let (state, driver) = match &self.state {
            State::Waiting(missing) => (SourceState::Waiting { missing: missing.clone() }, None),
            State::Refused { driver, reason, retry, .. } => {
                let again = retry
                    .map(|retry| format!("; tries again in {} s", retry.seconds_left(tokio::time::Instant::now())));
                (SourceState::Refused { reason: reason.clone() + &again.unwrap_or_default() }, driver.clone())
            }
            State::Counting(attached) => {
                (SourceState::Counting { since: attached.since }, Some(attached.source.driver().clone()))
            }
        };
        let (probes, dropped_events, not_adopted) = match &self.state {
            State::Counting(Counting { source, .. }) => {
                let figures = source.figures();
                let probes = source.probes().map(|missing| self.running_totals.probes(figures, missing));
                (probes.unwrap_or_default(), self.running_totals.dropped(figures), source.warning())
            }
            _ => (Vec::new(), self.running_totals.dropped(&Figures::default()), None),
        };
        let degraded = self.degraded(driver.as_ref());
        // The degradation has the reason already.
        let is_said = |reason: &String| degraded.iter().any(|each| each.description == *reason);
        let not_attached = probes.iter().filter_map(|probe| probe.missing.clone()).filter(|reason| !is_said(reason));
        let block_records = match &self.state {
            State::Counting(attached) => self.running_totals.records(attached.source.figures()),
            _ => self.running_totals.records(&Figures::default()),
        };

        let (mut processes, mut totals) =
            self.ledger.totals(|uid| self.users.name(uid), clock::wall(&self.config.roots));
        // Dropped events of a process are included in the total.
        totals.host.dropped_events = dropped_events.values().sum();
        let of_processes = [Processes::hung_reads(), self.command_lines.warning()];
        // Else it is what uvmd waits for.
        let sys_unread = self.sys_unread.clone().filter(|_| !matches!(self.state, State::Waiting(_)));
        let fatal_error = self.driver_state.fatal_error();
        let warnings = of_processes.into_iter().chain([sys_unread, self.gpus_unreadable.clone(), not_adopted]);
        let warnings = [fatal_error.map(|error| error.to_string())].into_iter().chain(warnings);
        let of_users = self.managed.warnings().chain(self.code.warnings()).map(Some);
        let warnings = self.processes.warnings().map(Some).chain(warnings).chain(of_users);
        let warnings = warnings.flatten().chain(self.crosscheck_warnings()).chain(not_attached);
        let mut warnings: Vec<_> = warnings.collect();
        // Several probes may be missing for one reason.
        warnings.dedup();
        let (backend, not_counted) = match &self.state {
            State::Counting(counting) => (counting.source.backend(), counting.source.not_counted()),
            _ => ("ebpf", Vec::new()),
        };
        let gpus = self.gpus.with(totals.gpus.keys().copied());
        for (gpu, residency) in processes.iter_mut().flat_map(|process| &mut process.residency) {
            if let Some(bytes) = gpus.get(gpu).and_then(|gpu| gpu.memory_bytes) {
                *residency = residency.at_most(bytes);
            }
        }
        for process in &mut processes {
            process.exited_at = process.exited_at.map(|at| self.clock.shown(at));
        }
        let mut owners = self.ledger.owners();
        for totals in owners.values_mut() {
            totals.last_active_at = self.clock.shown(totals.last_active_at);
        }
        Snapshot {
            taken: SystemTime::now(),
            elapsed: self.clock.elapsed(),
            source: SourceStatus {
                backend,
                not_counted,
                state,
                warnings,
                degraded,
                quota_refusals: self.tenants.limits.refusals(|uid| self.users.name(uid)),
                driver,
                fatal_error,
                probes,
                dropped_events,
                block_records,
                crosschecks: self.crosschecks(),
            },
            gpus,
            processes,
            gpu_totals: totals.gpus,
            host_totals: totals.host,
            reuse_totals: self.ledger.reuse(),
            owners,
            owner_names: Arc::clone(&self.config.owner_names.borrow()),
            evictions: self.ledger.evictions(),
            owner_evictions: self.ledger.owner_evictions(),
        }
    }
}
