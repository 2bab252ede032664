//! The collector's work: attach when the driver comes, detach when it goes, read what was counted, and sum it up.
//!
//! It blocks: to read takes tens of microseconds, some milliseconds with thousands of counts; to load the probes when the driver comes about
//! half a second. So it has a thread of its own.
//!
//! * `attached`: the probes on one loading of the driver; `retry`: when to try again
//! * `reading`: what they have, taken to the ledger; `orphans` and `verdict`: whether it can be right; `running_totals`: their figures since uvmd started
//! * `tenants`: who holds how much of their maps; `budget`, `turn`: how often /proc is read for processes
//! * `snapshot`: what is given out

use std::{future, sync::Arc, time::SystemTime};

use aya::maps::MapError;
use model::DriverInfo;
use sys::{
    driver::{self, Module},
    families::{Families, TableError},
    parameters,
    preconditions::{self, Missing},
};
use tokio::time::Instant;

use crate::{
    Config, Retention,
    command_line::CommandLines,
    gpus::{self, Gpus},
    history::Histories,
    identity::Processes,
    ledger::{Ledger, Limits},
    managed::ManagedMemory,
    probes::quotas,
    refusal::Refusal,
    users::Users,
};

mod attached;
mod budget;
mod orphans;
mod reading;
mod retry;
mod running_totals;
mod snapshot;
mod tenants;
mod turn;
mod verdict;

use attached::Attached;
use budget::Budget;
use retry::Retry;
use running_totals::RunningTotals;
use tenants::Tenants;
use turn::Turn;
use verdict::verdict;

/// Processes that are looked at each second. A look takes some 100 µs.
const LOOKS_MAX: usize = 512;
/// VA spaces that are gone and not yet read for the last time: with so many, the reading does not wait, or the counts fill up.
const BACKLOG_MAX: usize = 64;

/// See the module's documentation.
pub(crate) struct Watcher {
    config: Config,
    families: Families,
    state: State,
    ledger: Ledger,
    processes: Processes,
    gpus: Gpus,
    gpus_unreadable: Option<String>,
    users: Users,
    managed: ManagedMemory,
    command_lines: CommandLines,
    running_totals: RunningTotals,
    tenants: Tenants,
    history: Histories,
    turn: Turn,
    budget: Budget,
    /// Whether it was said that there is hardly any room left.
    nearly_full: bool,
}

enum State {
    Waiting(Vec<Missing>),
    Refused { module: Module, driver: Option<DriverInfo>, reason: String, retry: Option<Retry> },
    Counting(Box<Attached>),
}

impl Watcher {
    pub(crate) fn new(config: Config) -> Result<Self, TableError> {
        let mut watcher = Self {
            families: Families::known()?,
            state: State::Waiting(Vec::new()),
            ledger: Ledger::new(Limits {
                retention: config.ended_retention,
                max_ended: config.max_ended,
                blocks: config.blocks,
                owners: config.owners,
            }),
            processes: Processes::new(&config.roots),
            gpus: Gpus::new(&config.roots),
            gpus_unreadable: None,
            users: Users::default(),
            managed: ManagedMemory::new(&config.roots),
            command_lines: CommandLines::new(&config.roots),
            running_totals: RunningTotals::new(&config.records),
            tenants: Tenants::default(),
            history: Histories::new(config.interval),
            turn: Turn::default(),
            budget: Budget::default(),
            nearly_full: false,
            config,
        };
        watcher.look();
        Ok(watcher)
    }

    /// Looks whether the driver came, went or was loaded again.
    pub(crate) fn look(&mut self) {
        let module = driver::module(&self.config.roots);
        let (known, retry) = match &self.state {
            State::Waiting(_) => (None, None),
            State::Refused { module, retry, .. } => (Some(module), *retry),
            State::Counting(attached) => (Some(&attached.module), None),
        };
        let is_same = known.is_some() && known == module.as_ref();
        if !is_same || retry.is_some_and(|retry| retry.is_due(Instant::now())) {
            self.detach(Some(SystemTime::now()));
            let missing = preconditions::missing(&self.config.roots, module.as_ref());
            match module {
                Some(module) if missing.is_empty() => self.attach(module, retry.filter(|_| is_same)),
                _ => self.wait(missing),
            }
        }
        // A process may come and go between two readings; which GPUs it uses is shown only meanwhile.
        self.look_at_gpus();
    }

    fn wait(&mut self, missing: Vec<Missing>) {
        if !matches!(&self.state, State::Waiting(before) if *before == missing) {
            for what in &missing {
                tracing::warn!("waiting: {what}");
            }
        }
        self.state = State::Waiting(missing);
    }

    fn attach(&mut self, module: Module, earlier: Option<Retry>) {
        match Attached::new(&self.config, &self.families, module.clone()) {
            Ok(attached) => {
                tracing::info!("counting: driver {}, layout {}", attached.driver.version, attached.family);
                self.tenants = self.tenants.renewed(&quotas(attached.counts_capacity));
                self.state = State::Counting(Box::new(attached));
                // Of VA spaces that were there already.
                self.take_lifecycles();
            }
            Err(refusal) => {
                let parameters = parameters::read(&self.config.roots);
                let driver =
                    module.version.clone().map(|version| DriverInfo { version, parameters, ..DriverInfo::default() });
                self.refuse(module, driver, &refusal, earlier);
            }
        }
    }

    fn refuse(&mut self, module: Module, driver: Option<DriverInfo>, refusal: &Refusal, earlier: Option<Retry>) {
        let reason = refusal.to_string();
        let retry = refusal.may_pass().then(|| Retry::after(earlier, Instant::now()));
        match &self.state {
            State::Refused { reason: before, .. } if *before == reason => tracing::debug!("refused again: {reason}"),
            _ => tracing::error!("refused: {reason}"),
        }
        self.state = State::Refused { module, driver, reason, retry };
    }

    /// Takes the last figures and detaches the probes. `gone`: when the driver went, if it did.
    fn detach(&mut self, gone: Option<SystemTime>) {
        if !matches!(self.state, State::Counting(_)) {
            return;
        }
        self.read_counts();
        if let State::Counting(attached) = &self.state {
            self.running_totals.add(&attached.figures);
        }
        self.state = State::Waiting(Vec::new());
        self.ledger.close_all(gone);
        tracing::info!("detached from the driver");
    }

    /// Ready when a VA space was made or destroyed.
    pub(crate) async fn lifecycles_ready(&self) {
        match &self.state {
            State::Counting(attached) => attached.lifecycles_ready().await,
            _ => future::pending().await,
        }
    }

    /// So much is kept from now on.
    pub(crate) fn retain(&mut self, retention: Retention) {
        self.ledger.retain(retention);
    }

    /// Whether counts should be read although it is not yet time.
    pub(crate) fn is_urgent(&self) -> bool {
        self.ledger.closing().len() >= BACKLOG_MAX
    }

    /// Reads every count, and stops counting if an event contradicted the layout.
    pub(crate) fn read(&mut self) {
        self.read_counts();
        self.look_at_gpus();
        let State::Counting(attached) = &self.state else { return };
        if let Some(refusal) = verdict(&attached.family, &attached.figures) {
            let (module, driver) = (attached.module.clone(), attached.driver.clone());
            self.discard();
            self.refuse(module, Some(driver), &refusal, None);
        }
    }

    /// Detaches the probes without their counts, which are not to be trusted.
    fn discard(&mut self) {
        self.take_lifecycles();
        self.ledger.discard();
        if let State::Counting(attached) = &self.state {
            self.running_totals.add(&attached.figures);
        }
        self.state = State::Waiting(Vec::new());
        self.ledger.close_all(None);
        tracing::info!("detached from the driver; counts of running processes are dropped");
    }

    /// Looks which processes are still there, and whether they have other names or cgroups by now: at so many a second, in turn.
    pub(crate) fn look_at_processes(&mut self) {
        let now = SystemTime::now();
        let present = self.ledger.present();
        for process in self.turn.take(&present, LOOKS_MAX) {
            self.ledger.seen(process, self.processes.read(process), now);
            let name = self.ledger.name(process);
            if let Some(line) = name.and_then(|name| self.command_lines.get(process, name)) {
                self.ledger.runs(process, line);
            }
            let managed = self.managed.of(process);
            if managed.is_some_and(|managed| self.ledger.manages(process, &managed)) {
                self.ledger.bound_ranges();
            }
        }
        self.managed.bound_ranges(self.ledger.bound_ranges());
    }

    fn look_at_gpus(&mut self) {
        let State::Counting(attached) = &self.state else {
            self.gpus_unreadable = None;
            self.gpus.rest();
            return;
        };
        match gpus::links(&self.config.roots, attached.family.procfs_ids_are_eightfold()) {
            Ok(links) => {
                self.gpus_unreadable = None;
                self.gpus.seen(&links);
                // A VA space that is gone by now may have been so when the links were read.
                self.take_lifecycles();
                self.ledger.shown(&Arc::new(links));
            }
            Err(error) => {
                self.gpus_unreadable = Some(format!(
                    "the GPUs of counts are unknown: /proc/driver/nvidia-uvm/gpus cannot be read ({error})"
                ));
            }
        }
    }
}

fn unread(error: &MapError) {
    tracing::error!("the probes' maps cannot be read: {error}");
}

#[cfg(test)]
mod tests;
