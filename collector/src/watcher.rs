//! Work of the collector: attaches the probes when the driver is loaded, detaches them when it is
//! unloaded, reads the counts, and sums them.
//!
//! It blocks: a read takes tens of microseconds, some milliseconds with thousands of counts; a load
//! of the probes about half a second. It therefore runs on a separate thread.
//!
//! * `retry`: times of retries
//! * `reading`: reads of the source into the ledger; `running_totals`: figures since uvmd started
//! * `crosschecking`: cross-check of the source by the driver's counters
//! * `budget`, `turn`: limits of reads of /proc for processes
//! * `driver_state`: whether the driver accepts new programs
//! * `snapshot`: output

use std::{
    collections::BTreeMap,
    future,
    sync::Arc,
    time::{Duration, SystemTime},
};

use model::{Crosschecks, DriverInfo};
use sys::{
    driver::{self, Module},
    families::{Families, TableError},
    fatal_error,
    preconditions::{Attachment, Missing},
    sysfs::{self, Unread},
};
use tokio::time::Instant;

use crate::{
    Config, Retention, SourceChoice,
    clock::{self, SteadyClock},
    code::Code,
    command_line::CommandLines,
    crosscheck::Crosscheck,
    gpus::{self, Gpus},
    handle::Exempt,
    history::Histories,
    identity::Processes,
    ledger::{Ledger, Limits},
    managed::ManagedMemory,
    probes::{Attached, quotas},
    refusal::Refusal,
    source::Source,
    sys_files::{DriverFiles, SysFiles},
    tenants::Tenants,
    tools::Tools,
    users::Users,
};

mod budget;
mod crosschecking;
mod driver_state;
mod reading;
mod retry;
mod running_totals;
mod snapshot;
mod turn;

use budget::Budget;
use crosschecking::Turns;
use driver_state::DriverState;
use retry::Retry;
use running_totals::RunningTotals;
use turn::Turn;

/// Processes checked per second. A check takes some 100 µs.
const LOOKS_MAX: usize = 512;
/// Time for them. Those that are left have their turn in the next second.
const LOOKS_TIME_MAX: Duration = Duration::from_millis(250);
/// Destroyed VA spaces not yet read for the last time at which the reading does not wait, as the
/// counts would fill up.
const BACKLOG_MAX: usize = 64;

/// Watcher of the driver.
pub(crate) struct Watcher {
    config: Config,
    clock: SteadyClock,
    families: Families,
    state: State,
    ledger: Ledger,
    processes: Processes,
    gpus: Gpus,
    gpus_unreadable: Option<String>,
    driver_state: DriverState,
    /// Reason why it is unknown whether the driver is still loaded.
    sys_unread: Option<String>,
    users: Users,
    managed: ManagedMemory,
    code: Code,
    command_lines: CommandLines,
    running_totals: RunningTotals,
    tenants: Tenants,
    history: Histories,
    turn: Turn,
    budget: Budget,
    /// Cross-check of the current source.
    crosscheck: Option<Crosscheck>,
    /// Cross-checks of earlier ones.
    crosschecked: Crosschecks,
    turns_of_checks: Turns,
    /// Processes that are not cross-checked.
    exempt: Exempt,
}

enum State {
    /// With the reasons.
    Waiting(Vec<String>),
    Refused {
        module: Module,
        driver: Option<DriverInfo>,
        reason: String,
        retry: Option<Retry>,
    },
    Counting(Counting),
}

/// Source on one loading of the driver.
struct Counting {
    module: Module,
    since: SystemTime,
    source: Box<dyn Source>,
}

impl Watcher {
    pub(crate) fn new(config: Config) -> Result<Self, TableError> {
        let mut watcher = Self {
            clock: SteadyClock::new(SystemTime::now()),
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
            driver_state: DriverState::default(),
            sys_unread: None,
            users: Users::default(),
            code: Code::new(&config.roots),
            managed: ManagedMemory::new(&config.roots),
            command_lines: CommandLines::new(&config.roots),
            running_totals: RunningTotals::new(&config.records),
            tenants: Tenants::default(),
            history: Histories::new(config.interval),
            turn: Turn::default(),
            budget: Budget::default(),
            crosscheck: None,
            crosschecked: Crosschecks::default(),
            turns_of_checks: Turns::default(),
            exempt: Exempt::default(),
            config,
        };
        watcher.look();
        Ok(watcher)
    }

    /// Checks whether the driver was loaded, unloaded or reloaded.
    pub(crate) fn look(&mut self) {
        self.sys_unread = self.try_look().err().map(|unread| unread.to_string());
        if let (State::Waiting(_), Some(unread)) = (&self.state, &self.sys_unread) {
            self.wait(vec![unread.clone()]);
        }
        self.driver_state.set_probed_status(match &self.state {
            State::Counting(attached) => attached.source.figures().fatal_status,
            _ => None,
        });
        self.look_for_spaces();
        self.look_at_crosscheck();
        // A process may start and exit between two readings; its GPUs are listed only meanwhile.
        self.look_at_gpus();
    }

    fn try_look(&mut self) -> Result<(), Unread> {
        let module = sysfs::read(&self.config.roots, driver::module)?;
        let (known, retry) = match &self.state {
            State::Waiting(_) => (None, None),
            State::Refused { module, retry, .. } => (Some(module), *retry),
            State::Counting(attached) => (Some(&attached.module), None),
        };
        let is_same = known.is_some() && known == module.as_ref();
        if !is_same || retry.is_some_and(|retry| retry.is_due(Instant::now())) {
            self.detach(Some(self.clock.now()));
            let SysFiles { missing, of_driver } = SysFiles::read(&self.config.roots, module.as_ref())?;
            let retry = retry.filter(|_| is_same);
            match (module, of_driver, self.config.source) {
                (Some(module), _, SourceChoice::Tools) | (Some(module), None, SourceChoice::Auto) => {
                    let is_chosen = self.config.source == SourceChoice::Tools;
                    let why = missing.iter().filter(|_| !is_chosen).map(ToString::to_string).collect();
                    self.attach_tools(module, why, retry);
                }
                (Some(module), Some(files), _) => self.attach(module, files, retry),
                (None, ..) | (_, None, SourceChoice::Probes) => {
                    self.wait(missing.iter().filter(|reason| self.needs(**reason)).map(ToString::to_string).collect());
                }
            }
        }
        Ok(())
    }

    /// Whether a missing precondition has to be met.
    fn needs(&self, missing: Missing) -> bool {
        self.config.source == SourceChoice::Probes || missing == Missing::Driver
    }

    /// Counts by the driver's tools. `why`: reasons why probes cannot be attached.
    fn attach_tools(&mut self, module: Module, why: Vec<String>, earlier: Option<Retry>) {
        match Tools::new(&self.config, &self.families, &module, &why) {
            Ok(tools) => {
                self.count(module, Box::new(tools));
                self.look_for_spaces();
            }
            Err(refusal @ Refusal::NoHolder(_)) => self.refuse_with(module, None, &refusal, earlier),
            Err(refusal) => {
                let tools = format!("the driver's tools cannot be used: {refusal}");
                self.wait(why.into_iter().chain([tools]).collect());
            }
        }
    }

    /// Lets the source look for VA spaces.
    fn look_for_spaces(&mut self) {
        let now = clock::since_boot(&self.config.roots).unwrap_or_default();
        if let State::Counting(counting) = &mut self.state {
            counting.source.look(now);
        }
        self.take_lifecycles();
    }

    fn wait(&mut self, missing: Vec<String>) {
        if !matches!(&self.state, State::Waiting(before) if *before == missing) {
            for reason in &missing {
                tracing::warn!("waiting: {reason}");
            }
        }
        self.state = State::Waiting(missing);
    }

    fn attach(&mut self, module: Module, files: DriverFiles, earlier: Option<Retry>) {
        let parameters = files.parameters.clone();
        let attachment = files.attachment;
        match Attached::new(&self.config, &self.families, &module, files) {
            Ok(attached) => {
                self.tenants = self.tenants.renewed(&quotas(attached.counts_capacity()));
                self.count(module, Box::new(attached));
                // Records of the VA spaces found.
                self.take_lifecycles();
            }
            Err(refusal) if lasts(&refusal, attachment, earlier) => {
                if let Err((module, refusal)) = self.count_by_tools_instead(module, refusal) {
                    self.refuse_with(module, Some(parameters), &refusal, earlier);
                }
            }
            Err(refusal) => {
                self.refuse_with(module, Some(parameters), &refusal, earlier);
            }
        }
    }

    /// Counts by the driver's tools where probes are refused, if the source may be chosen and they
    /// can be used. Gives the module back otherwise, with the refusal of both.
    fn count_by_tools_instead(&mut self, module: Module, refusal: Refusal) -> Result<(), (Module, Refusal)> {
        if self.config.source != SourceChoice::Auto {
            return Err((module, refusal));
        }
        match Tools::new(&self.config, &self.families, &module, &[refusal.to_string()]) {
            Ok(tools) => {
                tracing::warn!("no probes: {refusal}");
                self.count(module, Box::new(tools));
                Ok(())
            }
            Err(tools) => Err((module, Refusal::Both { probes: Box::new(refusal), tools: Box::new(tools) })),
        }
    }

    fn count(&mut self, module: Module, source: Box<dyn Source>) {
        let DriverInfo { version, layout, .. } = source.driver();
        let layout = layout.as_deref().unwrap_or("unknown");
        tracing::info!("counting by {}: driver {version}, layout {layout}", source.backend());
        self.state = State::Counting(Counting { module, since: SystemTime::now(), source });
    }

    fn refuse_with(
        &mut self,
        module: Module,
        parameters: Option<BTreeMap<String, String>>,
        refusal: &Refusal,
        earlier: Option<Retry>,
    ) {
        let parameters = parameters.unwrap_or_default();
        let driver = module.version.clone().map(|version| DriverInfo { version, parameters, ..DriverInfo::default() });
        self.refuse(module, driver, refusal, earlier);
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

    /// Reads the last figures and detaches the probes. `gone`: time of the driver's unload, if it
    /// was unloaded.
    fn detach(&mut self, gone: Option<SystemTime>) {
        if !matches!(self.state, State::Counting(_)) {
            return;
        }
        self.read_counts();
        if let State::Counting(attached) = &self.state {
            self.running_totals.add(attached.source.figures());
        }
        self.end_crosscheck();
        self.state = State::Waiting(Vec::new());
        self.ledger.close_all(gone);
        tracing::info!("detached from the driver");
    }

    /// Completes when a VA space was created or destroyed.
    pub(crate) async fn lifecycles_ready(&self) {
        match &self.state {
            State::Counting(attached) => attached.source.ready().await,
            _ => future::pending().await,
        }
    }

    /// Sets the limits of retention.
    pub(crate) fn retain(&mut self, retention: Retention) {
        self.ledger.retain(retention);
    }

    /// Whether counts should be read before their regular time.
    pub(crate) fn is_urgent(&self) -> bool {
        self.ledger.closing().len() >= BACKLOG_MAX
    }

    /// Reads all counts, and stops counting by probes if an event contradicted the layout.
    pub(crate) fn read(&mut self) {
        let compared = self.begin_comparison();
        let is_read = self.read_counts();
        if let Some(before) = compared.filter(|_| is_read) {
            self.end_comparison(before);
        }
        self.look_at_gpus();
        let State::Counting(attached) = &self.state else { return };
        if let Some(refusal) = attached.source.contradiction() {
            let (module, driver) = (attached.module.clone(), attached.source.driver().clone());
            self.discard();
            if let Err((module, refusal)) = self.count_by_tools_instead(module, refusal) {
                self.refuse(module, Some(driver), &refusal, None);
            }
        }
    }

    /// Detaches the probes without their counts, which are not trustworthy.
    fn discard(&mut self) {
        self.take_lifecycles();
        self.ledger.discard();
        if let State::Counting(attached) = &self.state {
            self.running_totals.add(attached.source.figures());
        }
        self.end_crosscheck();
        self.state = State::Waiting(Vec::new());
        self.ledger.close_all(None);
        tracing::info!("detached from the driver; counts of running processes are dropped");
    }

    /// Checks whether the driver accepts new programs.
    pub(crate) fn poll_driver_state(&mut self) {
        let roots = &self.config.roots;
        let is_loaded = sysfs::read(roots, driver::module).is_ok_and(|module| module.is_some());
        // Without a driver, an open would have the kernel load one.
        let acceptance = is_loaded.then(|| fatal_error::acceptance_with_timeout(roots));
        self.driver_state.set_acceptance(acceptance.unwrap_or_default());
    }

    /// Checks which processes are alive, and their names and cgroups: a number per second, in turn.
    pub(crate) fn look_at_processes(&mut self) {
        let now = self.clock.now();
        let present = self.ledger.present();
        let begun = Instant::now();
        for process in self.turn.take(&present, LOOKS_MAX) {
            if begun.elapsed() > LOOKS_TIME_MAX {
                self.turn.resume_at(process);
                break;
            }
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
        self.ledger.place_sites(self.code.places(self.ledger.unplaced_sites()));
    }

    fn look_at_gpus(&mut self) {
        let State::Counting(attached) = &self.state else {
            self.gpus_unreadable = None;
            self.gpus.rest();
            return;
        };
        match gpus::links(&self.config.roots, attached.source.procfs_ids_are_eightfold()) {
            Ok(links) => {
                self.gpus_unreadable = None;
                self.gpus.seen(&links);
                // A VA space destroyed by now may have been destroyed when the links were read.
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

/// Whether a refusal of probes lasts, so that the tools are chosen, which stay until the driver is
/// reloaded. A shortage has a few retries to pass. Fentry needs what the kernel has or has not.
fn lasts(refusal: &Refusal, attachment: Attachment, earlier: Option<Retry>) -> bool {
    !refusal.may_pass()
        || attachment == Attachment::Fentry && !refusal.is_of_attachment()
        || earlier.is_some_and(Retry::is_last)
}

#[cfg(test)]
mod tests;
