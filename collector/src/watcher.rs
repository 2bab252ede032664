//! The collector's work: attach when the driver comes, detach when it goes, read what was counted, and sum it up.
//!
//! It blocks: to read takes tens of microseconds, some milliseconds with thousands of counts; to load the probes when the driver comes about
//! half a second. So it has a thread of its own.

use std::{
    collections::HashSet,
    future,
    sync::Arc,
    time::{Instant, SystemTime},
};

use abi::{LifecycleKind, LostReason, count::EvictionKey};
use aya::maps::MapError;
use model::{DriverInfo, HeatMap, HeatRequest, HistoryRequest, Snapshot, SourceState, SourceStatus};
use sys::{
    driver::{self, Module},
    families::{Families, TableError},
    parameters,
    preconditions::{self, Missing},
};

use crate::{
    Config, clock,
    command_line::CommandLines,
    gpus::{self, Gpus},
    identity::Processes,
    ledger::{Ledger, Limits, Losses},
    managed::ManagedMemory,
    probes::{DISTRIBUTIONS_CAPACITY, EVICTIONS_CAPACITY, Figures},
    refusal::Refusal,
    rings::Rings,
    users::Users,
};

mod attached;
mod history;
mod retry;
mod strays;
mod verdict;

use attached::Attached;
use history::History;
use retry::Retry;
use verdict::verdict;

/// VA spaces that are gone and not yet read for the last time: with so many, the reading does not wait, or the counts fill up.
const BACKLOG_MAX: usize = 64;
/// The counts, or the distributions, are nearly full when this part of them is taken, in percent.
const NEARLY_FULL: usize = 80;

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
    history: History,
    rings: Rings,
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
                ended_max: config.ended_max,
                blocks: config.blocks,
                owners: config.owners,
            }),
            processes: Processes::new(&config.roots),
            gpus: Gpus::new(&config.roots),
            gpus_unreadable: None,
            users: Users::default(),
            managed: ManagedMemory::new(&config.roots),
            command_lines: CommandLines::new(&config.roots),
            history: History::new(&config.records),
            rings: Rings::new(config.interval),
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
                self.state = State::Counting(Box::new(attached));
                // Of VA spaces that were there already.
                self.take_lifecycles();
            }
            Err(refusal) => {
                let parameters = parameters::read(&self.config.roots);
                let driver = module.version.clone().map(|version| DriverInfo { version, layout: None, parameters });
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
            self.history.add(&attached.figures);
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

    /// Whether counts should be read although it is not yet time.
    pub(crate) fn is_urgent(&self) -> bool {
        self.ledger.closing().len() >= BACKLOG_MAX
    }

    /// Notes which VA spaces were made and destroyed.
    pub(crate) fn take_lifecycles(&mut self) {
        let State::Counting(attached) = &mut self.state else { return };
        for record in attached.probes.lifecycles() {
            match record.kind() {
                Some(kind @ (LifecycleKind::Registered | LifecycleKind::Adopted)) => {
                    let (process, identity) = self.processes.of_record(&record);
                    tracing::debug!(pid = process.pid, name = identity.name, ?kind, "a process opened the driver");
                    self.users.want(identity.uid);
                    // Read at once: it may be gone soon.
                    self.command_lines.get(process, &identity.name);
                    self.ledger.registered(record.generation, process, identity);
                    if kind == LifecycleKind::Adopted {
                        self.ledger.adopted(process);
                    }
                }
                Some(LifecycleKind::Destroyed) => {
                    let losses = Losses { events: record.lost_events, records: record.records };
                    self.ledger.destroyed(record.generation, losses, SystemTime::now());
                }
                None => tracing::error!("a lifecycle record of unknown kind {}", record.kind),
            }
        }
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
            self.history.add(&attached.figures);
        }
        self.state = State::Waiting(Vec::new());
        self.ledger.close_all(None);
        tracing::info!("detached from the driver; what was counted for processes that still run is dropped");
    }

    fn read_counts(&mut self) {
        // What is destroyed before the reading is final in it; what is made before or during it is known after it.
        self.take_lifecycles();
        let closing = self.ledger.closing();
        self.take_blocks();
        if let Err(error) = self.try_read_counts(&closing) {
            unread(&error);
        }
        self.take_lifecycles();
        self.look_for_missed();
        let now = SystemTime::now();
        self.ledger.forget(now);
        self.ledger.settle_owners(now);
    }

    /// Finds VA spaces whose making was missed, and ends those whose end was not told; their counts are final at the next reading.
    fn look_for_missed(&mut self) {
        let State::Counting(attached) = &mut self.state else { return };
        attached.read_figures();
        attached.adopt_if_missed(Instant::now());
        let ring_full = attached.figures.lost.get(LostReason::RingFull as usize).copied().unwrap_or_default();
        let now = Instant::now();
        if !attached.strays.is_due(ring_full, now) {
            return;
        }
        let open = self.ledger.open();
        match attached.probes.spaces() {
            Ok(spaces) => {
                let known: HashSet<_> = spaces.iter().map(|space| space.generation).collect();
                for generation in attached.strays.look(open, &known, ring_full, now) {
                    tracing::warn!("the end of a VA space was not told: its process is taken for ended now");
                    self.ledger.destroyed(generation, Losses::default(), SystemTime::now());
                }
            }
            Err(error) => unread(&error),
        }
    }

    fn try_read_counts(&mut self, closing: &[u64]) -> Result<(), MapError> {
        let State::Counting(attached) = &mut self.state else { return Ok(()) };
        let probes = &mut attached.probes;
        let counts = probes.counts()?;
        let distributions = probes.distributions()?;
        let spaces = probes.spaces()?;
        let until_ns = clock::not_before_now(&self.config.roots);
        for space in spaces {
            let losses = Losses { events: space.lost_events, records: space.records };
            if losses != Losses::default() {
                self.ledger.lost_by(space.generation, losses, until_ns);
            }
        }
        let evictions = probes.evictions()?;
        for (key, tally) in counts.iter().chain(&distributions) {
            self.ledger.count(*key, *tally);
        }
        for (key, tally) in &evictions {
            self.ledger.pushed_out(*key, *tally);
        }
        let maps = [
            ("counts", counts.len(), attached.counts_capacity),
            ("parts of distributions", distributions.len(), DISTRIBUTIONS_CAPACITY),
            ("pairs of evictor and victim", evictions.len(), EVICTIONS_CAPACITY),
        ];
        let nearly_full = maps.into_iter().find(|(_, used, capacity)| used * 100 > *capacity as usize * NEARLY_FULL);
        if let (Some((what, used, capacity)), false) = (nearly_full, self.nearly_full) {
            tracing::warn!("{used} of {capacity} {what} are in use: what finds no room is lost as counts_full");
        }
        self.nearly_full = nearly_full.is_some();
        // Closed only once its keys are gone: what is left would be taken for another VA space's.
        let gone: HashSet<_> = closing.iter().copied().collect();
        for (key, _) in counts.iter().chain(&distributions).filter(|(key, _)| gone.contains(&key.generation)) {
            probes.forget(key)?;
        }
        let is_final = |key: &EvictionKey| gone.contains(&key.victim) || gone.contains(&key.evictor);
        for (key, _) in evictions.iter().filter(|(key, _)| is_final(key)) {
            probes.forget_eviction(key)?;
        }
        for generation in closing {
            self.ledger.close(*generation);
        }
        Ok(())
    }

    /// Takes the block records that were written since the last time.
    pub(crate) fn take_blocks(&mut self) {
        // Whose they are is known before them.
        self.take_lifecycles();
        let State::Counting(attached) = &mut self.state else { return };
        attached.probes.blocks(|record| self.ledger.happened(&record));
        self.ledger.bound_blocks();
    }

    /// Looks which processes are still there, and whether they have other names or cgroups by now.
    pub(crate) fn look_at_processes(&mut self) {
        let now = SystemTime::now();
        for process in self.ledger.present() {
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
                    "which GPUs the counts belong to is not known, as /proc/driver/nvidia-uvm/gpus cannot be read ({error})"
                ));
            }
        }
    }

    /// The memory of a process in cells; `None` if it is not known.
    pub(crate) fn heat(&self, request: &HeatRequest) -> Option<HeatMap> {
        let now_ns = clock::since_boot(&self.config.roots).map_or(0, clock::nanoseconds);
        self.ledger.heat(request, now_ns)
    }

    /// Keeps what was read for [`Self::lately`]. For regular readings only.
    pub(crate) fn keep(&mut self, snapshot: &Snapshot) {
        self.rings.take(snapshot, Instant::now());
    }

    /// What was counted lately; `None` if nothing is known of it.
    pub(crate) fn lately(&self, request: &HistoryRequest) -> Option<model::History> {
        self.rings.lately(request, Instant::now(), SystemTime::now())
    }

    /// Everything known now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let (state, driver) = match &self.state {
            State::Waiting(missing) => {
                (SourceState::Waiting { missing: missing.iter().map(ToString::to_string).collect() }, None)
            }
            State::Refused { driver, reason, retry, .. } => {
                let again = retry.map(|retry| format!("; tries again in {} s", retry.seconds_left(Instant::now())));
                (SourceState::Refused { reason: reason.clone() + &again.unwrap_or_default() }, driver.clone())
            }
            State::Counting(attached) => {
                (SourceState::Counting { since: attached.since }, Some(attached.driver.clone()))
            }
        };
        let (probes, dropped_events, not_adopted) = match &self.state {
            State::Counting(attached) => {
                let probes = self.history.probes(&attached.figures, attached.probes.missing());
                (probes, self.history.lost(&attached.figures), attached.warning.clone())
            }
            _ => (Vec::new(), self.history.lost(&Figures::default()), None),
        };
        let not_attached = probes.iter().filter_map(|probe| probe.missing.clone());
        let block_records = match &self.state {
            State::Counting(attached) => self.history.records(&attached.figures),
            _ => self.history.records(&Figures::default()),
        };

        let (mut processes, mut totals) =
            self.ledger.totals(|uid| self.users.name(uid), clock::wall(&self.config.roots));
        // Those that belong to a process are among all that were dropped.
        totals.host.dropped_events = dropped_events.values().sum();
        let warnings = [self.processes.warning(), self.gpus_unreadable.clone(), self.managed.warning(), not_adopted];
        let mut warnings: Vec<_> = warnings.into_iter().flatten().chain(not_attached).collect();
        // Several probes may be missing for one reason.
        warnings.dedup();
        let gpus = self.gpus.with(totals.gpus.keys().copied());
        for (gpu, residency) in processes.iter_mut().flat_map(|process| &mut process.residency) {
            if let Some(bytes) = gpus.get(gpu).and_then(|gpu| gpu.memory_bytes) {
                *residency = residency.at_most(bytes);
            }
        }
        Snapshot {
            taken: SystemTime::now(),
            source: SourceStatus { backend: "ebpf", state, warnings, driver, probes, dropped_events, block_records },
            gpus,
            processes,
            gpu_totals: totals.gpus,
            host_totals: totals.host,
            reuse_totals: self.ledger.reuse(),
            owners: self.ledger.owners(),
            evictions: self.ledger.evictions(),
            owner_evictions: self.ledger.owner_evictions(),
        }
    }
}

fn unread(error: &MapError) {
    tracing::error!("the probes' maps cannot be read: {error}");
}

#[cfg(test)]
mod tests;
