//! Tools: the driver's own counters of each VA space, as a source that needs no probes.
//!
//! ```text
//!   /proc ── finder: processes that have the driver open ──▶ VA space, its descriptor duplicated
//!                                                                │
//!   reading ◀── memory of a VA space ◀── driver ◀── trackers in the holder of its user
//! ```
//!
//! Each VA space is found after it was created: what happened before is not counted, and never
//! guessed. Its process is therefore always adopted.
//!
//! * `search`: search for VA spaces, on a thread of its own; `finder`: processes that have the driver
//!   open; `progress`: the process that a search is at
//! * `holders`: holders by user
//! * `space`: a held VA space, and its counts
//! * `quota`: limits of VA spaces by process and user
//! * `tally`: counts of a VA space from the driver's records; `timeline`: batches and evictors, over
//!   all VA spaces

use std::{
    collections::{BTreeMap, HashSet},
    future,
    ops::Bound,
    os::fd::AsFd,
    pin::Pin,
    time::Duration,
};

use abi::{BlockRecord, DropReason, Lifecycle, LifecycleKind, Probe, Tenant};
use model::{Degradation, DegradedReason, DriverInfo, Quantity};
use sys::{
    Roots,
    driver::Module,
    families::Families,
    trackers::Event,
    uvm::{openers::Device, tracker::Layout},
};

use crate::{
    Config, clock,
    figures::Figures,
    gpus,
    ledger::Generation,
    refusal::Refusal,
    source::{ReadError, Reading, Source},
    tenants::Tenants,
};

mod finder;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod holders;
mod progress;
mod quota;
mod search;
mod space;
mod tally;
#[cfg_attr(not(any(test, feature = "fuzzing")), expect(dead_code, reason = "no records of faults are requested yet"))]
mod timeline;

use holders::Holders;
use quota::Quota;
use search::{Counted, Finding, Found, Search};
use space::{Gpus, Phase, Space};

/// Generations of this source: none of the probes' is as large.
const FIRST_GENERATION: Generation = 1 << 63;
/// Maximum of records that one look reads, of all VA spaces. The driver counts those beyond as dropped.
const RECORDS_MAX: u32 = 1 << 17;
/// Longest wait of a reading for records.
const FLUSH_MAX: Duration = Duration::from_millis(50);

/// Source by the driver's tools interface.
pub(crate) struct Tools {
    roots: Roots,
    driver: DriverInfo,
    layout: Layout,
    procfs_ids_are_eightfold: bool,
    search: Search,
    holders: Holders,
    quota: Quota,
    gpus: Gpus,
    spaces: BTreeMap<Generation, Space>,
    next: Generation,
    lifecycles: Vec<Lifecycle>,
    /// Block records of the last readings.
    blocks: Vec<BlockRecord>,
    /// VA space whose records were read last.
    last_read: Generation,
    /// Contradictory records of forgotten VA spaces.
    past_contradictions: u64,
    reduced: Degradation,
    figures: Figures,
}

impl Tools {
    /// Source on one loading of the driver. Nothing is counted before the first look. `why`:
    /// reasons why probes cannot be attached; none if they are not wanted.
    pub(crate) fn new(config: &Config, families: &Families, module: &Module, why: &[String]) -> Result<Self, Refusal> {
        let roots = config.roots.clone();
        let version = module.version.clone().ok_or(Refusal::NoVersion)?;
        let layout = Layout::of(&version)
            .map_err(|_| Refusal::UnknownVersion { version: version.clone(), supported: families.to_string() })?;
        let device = Device::of_driver(&roots).ok_or(Refusal::NoDevice)?;
        let procfs_ids_are_eightfold =
            families.of(&version).is_some_and(sys::families::Family::procfs_ids_are_eightfold);
        Ok(Self {
            search: Search::start(&roots, device),
            roots,
            driver: DriverInfo { version, parameters: sys::parameters::read(&config.roots), ..DriverInfo::default() },
            layout,
            procfs_ids_are_eightfold,
            holders: Holders::start(&config.program)?,
            quota: Quota::default(),
            // Up to 545, events have an id for each physical GPU; later, for each part of one.
            gpus: Gpus::new(if procfs_ids_are_eightfold { 1 } else { 8 }),
            spaces: BTreeMap::new(),
            next: FIRST_GENERATION,
            lifecycles: Vec::new(),
            blocks: Vec::new(),
            last_read: FIRST_GENERATION,
            past_contradictions: 0,
            reduced: reduced(why),
            figures: Figures { dropped: vec![0; DropReason::COUNT as usize], ..Figures::default() },
        })
    }

    /// Takes the outcomes of the holders' requests.
    fn take_events(&mut self) {
        let events = self.holders.events();
        self.take(events);
    }

    fn take(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Held { space, place } => self.with(space, |space| space.held_at(place)),
                Event::Counting { space: generation, page } => {
                    let Some(space) = self.spaces.get_mut(&generation) else { continue };
                    if space.counts_in(page) {
                        self.lifecycles.push(space.lifecycle(generation, LifecycleKind::Adopted));
                    }
                }
                Event::Refused { space: generation, error } => {
                    let Some(space) = self.spaces.get_mut(&generation) else { continue };
                    tracing::warn!(pid = space.opener.pid, "a VA space is not counted: {error}");
                    self.release(generation);
                }
                Event::Exited { space } => self.release(space),
                Event::Released { space } => self.end(space),
                // Their counters are asked for after them.
                Event::Watching { .. } | Event::Flushed => {}
            }
        }
        for generation in self.holders.lost() {
            self.end(generation);
        }
    }

    fn with(&mut self, generation: Generation, act: impl FnOnce(&mut Space)) {
        if let Some(space) = self.spaces.get_mut(&generation) {
            act(space);
        }
    }

    /// Has the trackers of a VA space closed. Its counts are final after that.
    fn release(&mut self, generation: Generation) {
        let Some(space) = self.spaces.get_mut(&generation) else { return };
        if space.begin_release() {
            self.holders.release(space.opener.uid, generation);
        }
    }

    /// Ends a VA space without trackers.
    fn end(&mut self, generation: Generation) {
        let Some(space) = self.spaces.get_mut(&generation) else { return };
        if space.phase() == Phase::Ended {
            return;
        }
        let was_counted = space.has_counted();
        space.end();
        self.quota.give_back(&space.opener, space.has_queue());
        if was_counted {
            self.lifecycles.push(space.lifecycle(generation, LifecycleKind::Destroyed));
        } else {
            self.spaces.remove(&generation);
        }
    }

    /// Releases VA spaces whose process has exited.
    fn release_exited(&mut self) {
        let has_exited = |space: &Space| space.process.has_exited().unwrap_or_default();
        let exited: Vec<_> = self
            .spaces
            .iter()
            .filter(|(_, space)| space.is_held() && has_exited(space))
            .map(|(generation, _)| *generation)
            .collect();
        for generation in exited {
            self.release(generation);
        }
    }

    /// Takes what the search has found, as far as holders have room for requests.
    fn take_findings(&mut self, now: Duration) {
        let counted = self.spaces.iter().filter(|(_, space)| space.is_held()).map(|(generation, space)| Counted {
            generation: *generation,
            pid: space.opener.pid,
            uid: space.opener.uid,
            place: space.place,
            held_at: space.held_place(),
        });
        self.search.update(counted.collect());
        while self.holders.have_room() {
            match self.search.next() {
                Some(Finding::Found(found)) => self.attach(found, now),
                Some(Finding::TooMany(opener)) => self.quota.deny(opener.uid, now),
                Some(Finding::Moved(generation, place)) => self.with(generation, |space| space.place = place),
                Some(Finding::Closed(generation)) => self.release(generation),
                None => break,
            }
        }
    }

    /// Attaches trackers to a VA space.
    fn attach(&mut self, found: Found, now: Duration) {
        let Found { opener, process, place, file } = found;
        if self.quota.take(&opener, now) {
            let has_queue = self.quota.take_queue(opener.uid, now);
            let generation = self.next;
            self.next += 1;
            match Space::new(opener.clone(), process, place, generation, &self.gpus, has_queue) {
                Ok(space) if self.holders.hold(generation, &space, file.as_fd(), self.layout) => {
                    self.spaces.insert(generation, space);
                }
                Ok(_) => self.quota.give_back(&opener, has_queue),
                Err(error) => {
                    tracing::error!("no memory for the counters of a VA space: {error}");
                    self.quota.give_back(&opener, has_queue);
                }
            }
        }
        // It may be the last one by now, whose close runs the driver's teardown.
        self.search.close(file);
    }

    /// Has the records of completed copies written, if some are missing, and waits a moment for
    /// that: one user's holder is enough for all.
    fn flush(&mut self) {
        let pending = self.spaces.iter().find(|(_, space)| space.has_pending());
        if let Some((generation, space)) = pending {
            let (generation, uid) = (*generation, space.opener.uid);
            let events = self.holders.flush(uid, generation, FLUSH_MAX);
            self.take(events);
        }
    }

    /// Reads records of all VA spaces, beginning with the one after the last that was read.
    fn read_records(&mut self) {
        let raw_to_boot_ns = self.raw_to_boot_ns();
        let (later, earlier) = (Bound::Excluded(self.last_read), Bound::Included(self.last_read));
        let order: Vec<Generation> = self
            .spaces
            .range((later, Bound::Unbounded))
            .chain(self.spaces.range((Bound::Unbounded, earlier)))
            .filter(|(_, space)| space.has_counted())
            .map(|(generation, _)| *generation)
            .collect();
        let mut left = RECORDS_MAX;
        for generation in order {
            let Some(space) = self.spaces.get_mut(&generation) else { continue };
            // One that has ended is read whole: there is no later reading.
            let max = if space.phase() == Phase::Ended { u32::MAX } else { left };
            if max > 0 {
                self.last_read = generation;
                left = left
                    .saturating_sub(space.read_records(max, raw_to_boot_ns, &mut |record| self.blocks.push(record)));
            }
        }
    }

    /// Difference of the clock of block records to that of the driver's records.
    fn raw_to_boot_ns(&self) -> u64 {
        let boot = clock::since_boot(&self.roots).map_or(0, clock::nanoseconds);
        boot.wrapping_sub(clock::nanoseconds(sys::clock::raw()))
    }

    /// Adds trackers for GPUs that were not shown before, as far as holders have room for requests.
    fn look_at_gpus(&mut self) {
        if let Ok(links) = gpus::links(&self.roots, self.procfs_ids_are_eightfold) {
            self.gpus.see(&links);
        }
        for (generation, space) in &mut self.spaces {
            if !self.holders.have_room() {
                break;
            }
            for (page, gpu) in space.add_gpus(&self.gpus) {
                self.holders.count(space.opener.uid, *generation, page, self.layout, gpu);
            }
        }
    }
}

impl Source for Tools {
    fn backend(&self) -> &'static str {
        "tools"
    }

    fn not_counted(&self) -> &'static [Quantity] {
        Quantity::NOT_OF_TOOLS
    }

    fn driver(&self) -> &DriverInfo {
        &self.driver
    }

    fn procfs_ids_are_eightfold(&self) -> bool {
        self.procfs_ids_are_eightfold
    }

    fn look(&mut self, now: Duration) {
        self.take_events();
        self.quota.settle(now);
        self.release_exited();
        self.look_at_gpus();
        self.take_findings(now);
    }

    fn ready(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        // Records are made by a look, after which they are taken.
        Box::pin(future::pending())
    }

    fn lifecycles(&mut self) -> Vec<Lifecycle> {
        self.take_events();
        std::mem::take(&mut self.lifecycles)
    }

    fn misses_moves(&self) -> bool {
        true
    }

    fn read(&mut self, _tenants: &mut Tenants, _now: Duration) -> Result<Reading, ReadError> {
        // Ids that GPUs have now.
        self.look_at_gpus();
        // Totals, then records: what the former have and the latter lack was dropped.
        for space in self.spaces.values_mut().filter(|space| space.has_counted()) {
            space.take_totals(&self.gpus);
        }
        self.flush();
        self.read_records();
        let mut counts = Vec::new();
        let mut contradictions = self.past_contradictions;
        for space in self.spaces.values_mut().filter(|space| space.has_counted()) {
            counts.extend(space.counts());
            contradictions = contradictions.saturating_add(space.contradictions());
        }
        if let Some(dropped) = self.figures.dropped.get_mut(DropReason::SelfTest as usize) {
            *dropped = contradictions;
        }
        Ok(Reading { counts, ..Reading::default() })
    }

    fn forget(
        &mut self,
        gone: &HashSet<Generation>,
        _tenants: &mut Tenants,
        _shares_until_ns: &dyn Fn(Tenant) -> u64,
    ) -> Result<(), ReadError> {
        let is_gone =
            |generation: &Generation, space: &mut Space| gone.contains(generation) && space.phase() == Phase::Ended;
        for (_, space) in self.spaces.extract_if(.., is_gone) {
            self.past_contradictions = self.past_contradictions.saturating_add(space.contradictions());
        }
        Ok(())
    }

    fn blocks(&mut self, take: &mut dyn FnMut(BlockRecord)) {
        self.read_records();
        self.blocks.drain(..).for_each(take);
    }

    fn figures(&self) -> &Figures {
        &self.figures
    }

    fn probes(&self) -> Option<&BTreeMap<Probe, String>> {
        None
    }

    fn degradations(&self, user: &dyn Fn(u32) -> Option<String>) -> Vec<Degradation> {
        let hang = self.holders.hung().map(|uid| holders::degradation(uid, user(uid)));
        [self.reduced.clone()].into_iter().chain(self.quota.degradations(user)).chain(hang).collect()
    }

    fn warning(&self) -> Option<String> {
        let broken = self.spaces.values().find_map(|space| Some((space.opener.pid, space.broken()?)));
        let unread = broken.map(|(pid, error)| format!("copies of process {pid} are counted without cause and size from now on, as its queue is invalid ({error})"));
        self.holders.warning().or_else(|| self.search.warning()).or(unread)
    }
}

/// State of a source that counts less than probes.
fn reduced(why: &[String]) -> Degradation {
    let why = if why.is_empty() { "collector.source is \"tools\"".to_owned() } else { why.join("; ") };
    Degradation {
        reason: DegradedReason::SourceReduced,
        uid: None,
        user: None,
        pid: None,
        description: format!("counts come from the driver's tools, which count less than probes: {why}"),
    }
}
