//! The collector's work: attach when the driver comes, detach when it goes, read what was counted, and sum it up.
//!
//! Everything here is quick: tens of microseconds to read, half a second to load the probes when the driver comes.

use std::{collections::BTreeMap, fs, future, io, os::fd::OwnedFd, time::SystemTime};

use abi::{LifecycleKind, LostReason, SelfTest};
use aya::maps::MapError;
use model::{DriverInfo, ProbeStatus, Snapshot, SourceState, SourceStatus};
use tokio::io::{Interest, unix::AsyncFd};

use crate::{
    Config,
    btf::Btf,
    families::{Families, Family, KernelNumbers, TableError},
    gpus::Gpus,
    identity,
    ledger::Ledger,
    preconditions::{self, Missing, Module, Refusal},
    probes::{Probes, counts_capacity},
    users::Users,
};

/// Runs of probes that the kernel skipped: not known to the probes, so not among their reasons.
const SKIPPED: &str = "skipped";

/// See the module's documentation.
pub(crate) struct Watcher {
    config: Config,
    families: Families,
    state: State,
    ledger: Ledger,
    gpus: Gpus,
    users: Users,
    /// Events lost under earlier attachments, by reason.
    lost_before: BTreeMap<&'static str, u64>,
}

enum State {
    Waiting(Vec<Missing>),
    Refused { module: Module, driver: Option<DriverInfo>, reason: String },
    Counting(Box<Attached>),
}

struct Attached {
    module: Module,
    driver: DriverInfo,
    family: Family,
    since: SystemTime,
    probes: Probes,
    lifecycles: AsyncFd<OwnedFd>,
}

impl Watcher {
    pub(crate) fn new(config: Config) -> Result<Self, TableError> {
        let mut watcher = Self {
            families: Families::known()?,
            state: State::Waiting(Vec::new()),
            ledger: Ledger::new(config.ended_retention, config.ended_max),
            gpus: Gpus::default(),
            users: Users::default(),
            lost_before: BTreeMap::new(),
            config,
        };
        watcher.look();
        Ok(watcher)
    }

    /// Looks whether the driver came, went or was loaded again.
    pub(crate) fn look(&mut self) {
        let module = preconditions::module(&self.config.roots);
        let known = match &self.state {
            State::Waiting(_) => None,
            State::Refused { module, .. } => Some(module),
            State::Counting(attached) => Some(&attached.module),
        };
        if known.is_none() || known != module.as_ref() {
            self.detach(Some(SystemTime::now()));
            let missing = preconditions::missing(&self.config.roots, module.as_ref());
            match module {
                Some(module) if missing.is_empty() => self.attach(module),
                _ => self.wait(missing),
            }
        }
    }

    fn wait(&mut self, missing: Vec<Missing>) {
        if !matches!(&self.state, State::Waiting(before) if *before == missing) {
            for what in &missing {
                tracing::warn!("waiting: {what}");
            }
        }
        self.state = State::Waiting(missing);
    }

    fn attach(&mut self, module: Module) {
        match self.attached(&module) {
            Ok(attached) => {
                tracing::info!("counting: driver {}, layout {}", attached.driver.version, attached.driver.layout);
                self.state = State::Counting(Box::new(attached));
            }
            Err(refusal) => self.refuse(module, None, &refusal),
        }
    }

    fn attached(&self, module: &Module) -> Result<Attached, Refusal> {
        let version = module.version.clone().ok_or(Refusal::NoVersion)?;
        let family = self.families.of(&version).cloned().ok_or_else(|| Refusal::UnknownVersion {
            version: version.clone(),
            supported: self.families.to_string(),
        })?;
        let btf = fs::read(self.config.roots.sys.join("kernel/btf/vmlinux")).map_err(Refusal::KernelTypesUnreadable)?;
        let kernel = KernelNumbers::from_btf(&Btf::parse(&btf)?, procfs::page_size())?;
        let cpus = aya::util::nr_cpus().map_err(|(_, error)| Refusal::Load(error.to_string()))?;
        let mut probes = Probes::load(&family.layout(&kernel), counts_capacity(cpus))?;
        probes.attach()?;
        let lifecycles = probes
            .lifecycles_fd()
            .and_then(watched)
            .map_err(|error| Refusal::Load(format!("the ring of lifecycle records cannot be waited for: {error}")))?;
        let driver = DriverInfo { version, layout: family.to_string() };
        Ok(Attached { module: module.clone(), driver, family, since: SystemTime::now(), probes, lifecycles })
    }

    fn refuse(&mut self, module: Module, driver: Option<DriverInfo>, refusal: &Refusal) {
        let reason = refusal.to_string();
        tracing::error!("refused: {reason}");
        self.state = State::Refused { module, driver, reason };
    }

    /// Takes the last figures and detaches the probes. `gone`: when the driver went, if it did.
    fn detach(&mut self, gone: Option<SystemTime>) {
        if !matches!(self.state, State::Counting(_)) {
            return;
        }
        self.read_counts();
        for (reason, events) in self.probes_now().1 {
            *self.lost_before.entry(reason).or_default() += events;
        }
        self.state = State::Waiting(Vec::new());
        self.ledger.close_all(gone);
        tracing::info!("detached from the driver");
    }

    /// Ready when a VA space was made or destroyed.
    pub(crate) async fn lifecycles_ready(&self) {
        let State::Counting(attached) = &self.state else { return future::pending().await };
        match attached.lifecycles.readable().await {
            // Cleared before the records are taken, so that one that comes meanwhile is not missed.
            Ok(mut ready) => ready.clear_ready(),
            Err(error) => {
                // The runtime is shutting down. The regular readings take the records too.
                tracing::debug!("cannot wait for lifecycle records: {error}");
                future::pending::<()>().await;
            }
        }
    }

    /// Notes which VA spaces were made and destroyed.
    pub(crate) fn take_lifecycles(&mut self) {
        let State::Counting(attached) = &mut self.state else { return };
        for record in attached.probes.lifecycles() {
            match record.kind() {
                Some(LifecycleKind::Registered) => {
                    let (process, identity) = identity::of_record(&self.config.roots, &record);
                    tracing::debug!(pid = process.pid, name = identity.name, "a process opened the driver");
                    self.users.want(identity.uid);
                    self.ledger.registered(record.generation, process, identity);
                }
                Some(LifecycleKind::Destroyed) => {
                    self.ledger.destroyed(record.generation, record.lost_events, SystemTime::now());
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
        match attached.probes.self_tests() {
            Ok(failed) => {
                if let Some(refusal) = verdict(&attached.family, &failed) {
                    let (module, driver) = (attached.module.clone(), attached.driver.clone());
                    self.detach(None);
                    self.refuse(module, Some(driver), &refusal);
                }
            }
            Err(error) => unread(&error),
        }
    }

    fn read_counts(&mut self) {
        // What is destroyed before the reading is final in it; what is made before or during it is known after it.
        self.take_lifecycles();
        let closing = self.ledger.closing();
        if let Err(error) = self.try_read_counts(&closing) {
            unread(&error);
        }
        self.take_lifecycles();
        self.ledger.forget(SystemTime::now());
    }

    fn try_read_counts(&mut self, closing: &[u64]) -> Result<(), MapError> {
        let State::Counting(attached) = &mut self.state else { return Ok(()) };
        let probes = &mut attached.probes;
        let counts = probes.counts()?;
        if probes.lost()?.get(LostReason::CountsFull as usize).is_some_and(|events| *events > 0) {
            for space in probes.spaces()? {
                self.ledger.lost(space.generation, space.lost_events);
            }
        }
        for (key, tally) in &counts {
            self.ledger.count(*key, *tally);
        }
        // Closed only once its keys are gone: what is left would be taken for another VA space's.
        for (key, _) in counts.iter().filter(|(key, _)| closing.contains(&key.generation)) {
            probes.forget(key)?;
        }
        for generation in closing {
            self.ledger.close(*generation);
        }
        Ok(())
    }

    /// Looks which processes are still there, and whether they have other names or cgroups by now.
    pub(crate) fn look_at_processes(&mut self) {
        let now = SystemTime::now();
        for process in self.ledger.running() {
            self.ledger.seen(process, identity::read(&self.config.roots, process), now);
        }
    }

    fn look_at_gpus(&mut self) {
        if let State::Counting(attached) = &self.state {
            self.gpus.look(&self.config.roots, attached.family.procfs_ids_are_eightfold());
        }
    }

    /// How the probes are doing, and the events lost under this attachment by reason.
    fn probes_now(&self) -> (Vec<ProbeStatus>, Vec<(&'static str, u64)>) {
        let State::Counting(attached) = &self.state else { return Default::default() };
        let (probes, skipped) = attached.probes.status();
        let lost = attached.probes.lost().unwrap_or_else(|error| {
            unread(&error);
            Vec::new()
        });
        let reasons = LostReason::ALL.iter().map(|reason| reason.name());
        (probes, reasons.zip(lost).chain([(SKIPPED, skipped)]).collect())
    }

    /// Everything known now.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let (state, driver) = match &self.state {
            State::Waiting(missing) => {
                (SourceState::Waiting { missing: missing.iter().map(ToString::to_string).collect() }, None)
            }
            State::Refused { driver, reason, .. } => (SourceState::Refused { reason: reason.clone() }, driver.clone()),
            State::Counting(attached) => {
                (SourceState::Counting { since: attached.since }, Some(attached.driver.clone()))
            }
        };
        let (probes, lost) = self.probes_now();
        // Every reason is always there.
        let mut dropped_events: BTreeMap<_, _> =
            LostReason::ALL.iter().map(|reason| reason.name()).chain([SKIPPED]).map(|reason| (reason, 0)).collect();
        for (reason, events) in self.lost_before.iter().map(|(reason, events)| (*reason, *events)).chain(lost) {
            *dropped_events.entry(reason).or_default() += events;
        }

        let (processes, mut totals) = self.ledger.totals(|uid| self.users.name(uid));
        // Those that belong to a process are among all that were dropped.
        totals.host.dropped_events = dropped_events.values().sum();
        Snapshot {
            taken: SystemTime::now(),
            source: SourceStatus { backend: "ebpf", state, driver, probes, dropped_events },
            gpus: self.gpus.with(totals.gpus.keys().copied()),
            processes,
            gpu_totals: totals.gpus,
            host_totals: totals.host,
        }
    }
}

#[expect(
    deprecated,
    reason = "what replaces it is unsafe for types that may change their descriptor; an OwnedFd cannot"
)]
fn watched(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd, Interest::READABLE)
}

/// What failed self-tests mean.
fn verdict(family: &Family, failed: &[u64]) -> Option<Refusal> {
    let failures: Vec<_> = SelfTest::ALL
        .iter()
        .zip(failed)
        .filter(|(_, events)| **events > 0)
        .map(|(test, events)| format!("{} ({events} times)", test.name()))
        .collect();
    (!failures.is_empty()).then(|| Refusal::SelfTest { family: family.to_string(), failures: failures.join(", ") })
}

fn unread(error: &MapError) {
    tracing::error!("the probes' maps cannot be read: {error}");
}

#[cfg(test)]
mod tests;
