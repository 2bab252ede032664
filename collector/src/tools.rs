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
//!   open; `creation_bounds`: earliest creation of a VA space; `progress`: the process that a search
//!   is at
//! * `holders`: holders by user
//! * `space`: a held VA space, and its counts; `queue`: a queue of its records; `replays`: that of the
//!   node's replays; `sink`: what records of all VA spaces are made into
//! * `single`: a tracker of one process at a time, for a source that needs none
//! * `named`: processes that a state names: `full`, those whose queues were full, and `late`, those that
//!   were counted late; `quota`: limits of VA spaces by process and user
//! * `tally`: counts of a VA space from the driver's records; `timeline`: batches and evictors, over
//!   all VA spaces

use std::{
    collections::{BTreeMap, HashSet},
    ops::Bound,
    os::fd::AsFd,
    pin::Pin,
    time::{Duration, Instant},
};

use abi::{BlockRecord, DropReason, Lifecycle, LifecycleKind, Probe, RecordFate, Tenant};
use model::{Degradation, DegradedReason, DriverInfo, Quantity, ToolsLevel};
use sys::{
    Roots,
    driver::Module,
    families::Families,
    trackers::{Event, Holder},
    uvm::{openers::Device, tracker::Layout},
};

use crate::{
    Config, clock,
    figures::Figures,
    gpus,
    ledger::{Generation, Losses},
    refusal::Refusal,
    source::{ReadError, Reading, Source},
    tenants::Tenants,
};

mod creation_bounds;
mod finder;
mod full;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod holders;
mod late;
mod named;
mod progress;
mod queue;
mod quota;
mod replays;
mod search;
mod single;
mod sink;
mod space;
mod tally;
#[cfg(test)]
mod testing;
mod timeline;

use full::FullQueues;
use holders::Holders;
use late::Late;
use quota::Quota;
use replays::Replays;
use search::{Counted, Finding, Found, Search};
pub(crate) use single::SingleTracker;
use sink::Sink;
use space::{Gpus, Phase, Space, queues_of};
use timeline::Timeline;

/// Generations of this source: none of the probes' is as large.
const FIRST_GENERATION: Generation = 1 << 63;
/// Maximum of records that one reading takes, of all VA spaces; and maximum of records that are read
/// in [`HALF_FULL_EVERY`] because queues were half full. The driver counts those beyond as dropped.
const RECORDS_MAX: u32 = 1 << 17;
/// Minimum of records that a reading of half full queues counts for, which bounds their number.
const RECORDS_OF_READING_MIN: u32 = 1 << 10;
/// Interval after which the maximum of records of half full queues is granted again.
const HALF_FULL_EVERY: Duration = Duration::from_millis(100);
/// Time for which a VA space that the driver does not count is named.
const DENIED: Duration = Duration::from_mins(1);
/// Longest wait of a reading for records.
const FLUSH_MAX: Duration = Duration::from_millis(50);
/// User whose holder has the queue of replays.
const ROOT: u32 = 0;

/// Source by the driver's tools interface.
pub(crate) struct Tools {
    roots: Roots,
    driver: DriverInfo,
    layout: Layout,
    level: ToolsLevel,
    procfs_ids_are_eightfold: bool,
    search: Search,
    holders: Holders,
    quota: Quota,
    gpus: Gpus,
    spaces: BTreeMap<Generation, Space>,
    next: Generation,
    replays: Replays,
    full: FullQueues,
    late: Late,
    lifecycles: Vec<Lifecycle>,
    sink: Sink,
    /// VA space whose records were read last.
    last_read: Generation,
    /// Records of half full queues that may still be read in this interval.
    half_full_left: u32,
    /// Begin of the interval, as time since boot.
    half_full_since: Option<Duration>,
    /// Last VA space that the driver does not count, when and why.
    denied: Option<(Instant, String)>,
    /// Contradictory records of forgotten VA spaces.
    past_contradictions: u64,
    /// Losses of records of forgotten VA spaces.
    past_losses: Losses,
    reduced: Degradation,
    figures: Figures,
}

impl Tools {
    /// Source on one loading of the driver. Nothing is counted before the first look. `why`:
    /// reasons why probes cannot be attached; none if they are not wanted.
    pub(crate) fn new(config: &Config, families: &Families, module: &Module, why: &[String]) -> Result<Self, Refusal> {
        let roots = config.roots.clone();
        let version = module.version.clone().ok_or(Refusal::NoVersion)?;
        let layout = Layout::of(&version).map_err(|_| Refusal::UnknownTools { version: version.clone() })?;
        let device = Device::of_driver(&roots).ok_or(Refusal::NoDevice)?;
        let level = config.tools_level;
        let procfs_ids_are_eightfold =
            families.of(&version).is_some_and(sys::families::Family::procfs_ids_are_eightfold);
        // Up to 545, events have an id for each physical GPU; later, for each part of one.
        let ids_per_gpu = if procfs_ids_are_eightfold { 1 } else { 8 };
        let timeline = (level >= ToolsLevel::Faults).then(|| Timeline::new(ids_per_gpu));
        Ok(Self {
            search: Search::start(&roots, device),
            roots,
            driver: DriverInfo { version, parameters: sys::parameters::read(&config.roots), ..DriverInfo::default() },
            layout,
            level,
            procfs_ids_are_eightfold,
            holders: Holders::start(&config.program)?,
            quota: Quota::default(),
            gpus: Gpus::new(ids_per_gpu),
            spaces: BTreeMap::new(),
            next: FIRST_GENERATION,
            replays: Replays::default(),
            full: FullQueues::default(),
            late: Late::default(),
            lifecycles: Vec::new(),
            sink: Sink { timeline, ..Sink::default() },
            last_read: FIRST_GENERATION,
            half_full_left: RECORDS_MAX,
            half_full_since: None,
            denied: None,
            past_contradictions: 0,
            past_losses: Losses::default(),
            reduced: reduced(level, why),
            figures: Figures { dropped: vec![0; DropReason::COUNT as usize], ..Figures::default() },
        })
    }

    /// Takes the outcomes of the holders' requests.
    fn take_events(&mut self) {
        let events = self.holders.events();
        self.take(events);
        self.read_half_full();
    }

    /// Reads all queues if one was half full, within the limit of the interval.
    fn read_half_full(&mut self) {
        if self.half_full_left == 0 || !self.holders.have_half_full() {
            return;
        }
        let read = self.read_records(self.half_full_left);
        self.half_full_left = self.half_full_left.saturating_sub(read.max(RECORDS_OF_READING_MIN));
        // One of which nothing is read stays full.
        if read > 0 && self.half_full_left > 0 {
            self.holders.rearm();
        }
    }

    fn take(&mut self, events: Vec<Event>) {
        for event in events {
            match event {
                Event::Watching { space, .. } if self.replays.are(space) => self.replays.watching(),
                Event::Refused { space, error } if self.replays.are(space) => {
                    tracing::warn!("replays of GPUs are not counted: {error}");
                    // It may be held already.
                    self.holders.release(ROOT, space);
                    self.end_replays();
                }
                Event::Exited { space } | Event::Released { space } if self.replays.are(space) => {
                    self.replays.end(None);
                }
                Event::Held { space, place } => self.with(space, |space| space.held_at(place)),
                Event::Counting { space: generation, page } => {
                    let Some(space) = self.spaces.get_mut(&generation) else { continue };
                    if space.counts_in(page) {
                        let now = clock::since_boot(&self.roots).unwrap_or_default();
                        self.late.counted(&space.opener, space.created_after, now);
                        self.lifecycles.push(space.lifecycle(generation, LifecycleKind::Adopted));
                    }
                }
                Event::Refused { space: generation, error } => {
                    let Some(space) = self.spaces.get_mut(&generation) else { continue };
                    let reason = format!("a VA space of process {} is not counted: {error}", space.opener.pid);
                    // It is found again every ten seconds.
                    if self.denied.as_ref().is_none_or(|(_, before)| *before != reason) {
                        tracing::warn!("{reason}");
                    }
                    self.denied = Some((Instant::now(), reason));
                    self.release(generation);
                }
                Event::Exited { space } => self.release(space),
                Event::Released { space } => self.end(space),
                // Their counters are asked for after them.
                Event::Watching { .. } | Event::Flushed | Event::HalfFull => {}
            }
        }
        for generation in self.holders.lost() {
            if self.replays.are(generation) {
                self.end_replays();
            } else {
                self.end(generation);
            }
        }
    }

    fn end_replays(&mut self) {
        self.replays.end(Some(clock::since_boot(&self.roots).unwrap_or_default()));
    }

    /// Has the queue of replays attached while VA spaces are held, and released after.
    fn look_at_replays(&mut self, now: Duration) {
        if !self.spaces.values().any(Space::is_held) {
            if let Some(generation) = self.replays.begin_release() {
                self.holders.release(ROOT, generation);
            }
        } else if self.sink.timeline.is_some() && self.replays.are_missing(now) && self.holders.has_room_for(ROOT) {
            let generation = self.next;
            self.next += 1;
            let is_asked = match self.replays.begin(generation, self.layout) {
                Ok(ask) => self.holders.hold(ROOT, generation, ask),
                Err(error) => {
                    tracing::error!("no memory for a queue of replays: {error}");
                    false
                }
            };
            if !is_asked {
                self.replays.end(Some(now));
            }
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
        self.quota.give_back(&space.opener, space.queues());
        if was_counted {
            self.lifecycles.push(space.lifecycle(generation, LifecycleKind::Destroyed));
        } else {
            self.spaces.remove(&generation);
        }
    }

    /// Releases VA spaces whose process has exited, as far as their holders have room for requests: a
    /// holder has closed their trackers by itself.
    fn release_exited(&mut self) {
        let has_exited = |space: &Space| space.process.has_exited().unwrap_or_default();
        let exited: Vec<_> = self
            .spaces
            .iter()
            .filter(|(_, space)| space.is_held() && has_exited(space))
            .map(|(generation, _)| *generation)
            .collect();
        for generation in exited {
            if self.spaces.get(&generation).is_some_and(|space| self.holders.has_room_for(space.opener.uid)) {
                self.release(generation);
            }
        }
    }

    /// Shows the search which VA spaces are counted.
    fn update_search(&mut self) {
        let counted = self.spaces.iter().filter(|(_, space)| space.is_held()).map(|(generation, space)| Counted {
            generation: *generation,
            pid: space.opener.pid,
            uid: space.opener.uid,
            place: space.place,
            held_at: space.held_place(),
        });
        self.search.update(counted.collect());
    }

    /// Takes what the search has found, as far as holders have room for requests.
    fn take_findings(&mut self) {
        while self.holders.have_room() {
            let Some(finding) = self.search.next() else { break };
            let now = clock::since_boot(&self.roots).unwrap_or_default();
            match finding {
                Finding::Found(found) => self.attach(found, now),
                Finding::TooMany(opener) => self.quota.deny(opener.uid, now),
                Finding::Moved(generation, place) => self.with(generation, |space| space.place = place),
                Finding::Closed(generation) => self.release(generation),
            }
        }
    }

    /// Attaches trackers to a VA space.
    fn attach(&mut self, found: Found, now: Duration) {
        let Found { opener, process, place, file, created_after } = found;
        if self.quota.take(&opener, now) {
            let queues = self.quota.take_queues(opener.uid, queues_of(self.level), now);
            let generation = self.next;
            self.next += 1;
            let found = (place, created_after);
            let is_held = match Space::new(opener.clone(), process, found, generation, &self.gpus, (self.level, queues))
            {
                Ok(space) => {
                    let ask = |holder: &mut Holder| space.attach(holder, generation, file.as_fd(), self.layout);
                    let is_held = self.holders.hold(opener.uid, generation, ask);
                    if is_held {
                        self.spaces.insert(generation, space);
                    }
                    is_held
                }
                Err(error) => {
                    tracing::error!("no memory for the counters of a VA space: {error}");
                    false
                }
            };
            if !is_held {
                self.quota.give_back(&opener, queues);
            }
        }
        // It may be the last one by now, whose close runs the driver's teardown.
        self.search.close(file);
    }

    /// Has the records of completed copies written, if some are missing, and waits a moment for
    /// that: one user's holder is enough for all.
    fn flush(&mut self) {
        let pending = self.spaces.iter().find(|(_, space)| space.has_pending());
        let pending = pending.map(|(generation, space)| (*generation, space.opener.uid));
        // A replay is not announced.
        if let Some((generation, uid)) = pending.or_else(|| Some((self.replays.generation()?, ROOT))) {
            let events = self.holders.flush(uid, generation, FLUSH_MAX);
            self.take(events);
        }
    }

    /// Reads at most `max` records of all VA spaces, beginning with the one after the last that was
    /// read. Returns how many.
    fn read_records(&mut self, max: u32) -> u32 {
        self.sink.raw_to_boot_ns = self.raw_to_boot_ns();
        let (later, earlier) = (Bound::Excluded(self.last_read), Bound::Included(self.last_read));
        let order: Vec<Generation> = self
            .spaces
            .range((later, Bound::Unbounded))
            .chain(self.spaces.range((Bound::Unbounded, earlier)))
            .filter(|(_, space)| space.has_counted())
            .map(|(generation, _)| *generation)
            .collect();
        let mut left = max;
        let mut all = 0_u32;
        for generation in order {
            let Some(space) = self.spaces.get_mut(&generation) else { continue };
            // One that has ended is read whole: there is no later reading.
            let max = if space.phase() == Phase::Ended { u32::MAX } else { left };
            if max > 0 {
                self.last_read = generation;
                let read = space.read_records(generation, max, &mut self.sink);
                left = left.saturating_sub(read);
                all = all.saturating_add(read);
            }
        }
        all
    }

    /// Whether VA spaces are known that are not counted, and may be the evictors of others.
    fn has_uncounted(&self) -> bool {
        self.quota.has_refused()
            || self.holders.hung().next().is_some()
            || self.holders.warning().is_some()
            || self.search.warning().is_some()
            || self.denied().is_some()
    }

    /// Reason why the driver did not count a VA space of late.
    fn denied(&self) -> Option<&str> {
        self.denied.as_ref().filter(|(at, _)| at.elapsed() < DENIED).map(|(_, reason)| reason.as_str())
    }

    /// Names processes whose records were dropped. Returns the VA spaces with faults without a record.
    fn take_losses(&mut self, now: Duration) -> Vec<Generation> {
        let mut lacks_faults = Vec::new();
        for (generation, space) in self.spaces.iter_mut().filter(|(_, space)| space.has_counted()) {
            let new = space.take_losses();
            if new.has_dropped {
                self.full.add(&space.opener, space.losses().records, now);
            }
            if new.lacks_faults {
                lacks_faults.push(*generation);
            }
        }
        lacks_faults
    }

    /// Names the process whose records filled the timeline.
    fn name_unordered(&mut self, now: Duration) {
        let Some(unordered) = self.sink.timeline.as_mut().and_then(Timeline::take_unordered) else { return };
        if let Some(space) = self.spaces.get(&unordered.largest) {
            self.full.add_unordered(&space.opener, unordered, now);
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
            if !self.holders.has_room_for(space.opener.uid) {
                continue;
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

    fn not_counted(&self) -> Vec<Quantity> {
        self.level.not_counted()
    }

    fn driver(&self) -> &DriverInfo {
        &self.driver
    }

    fn procfs_ids_are_eightfold(&self) -> bool {
        self.procfs_ids_are_eightfold
    }

    fn look(&mut self, now: Duration) {
        // Requests of clients cause further looks.
        if self.half_full_since.is_none_or(|set| now.saturating_sub(set) >= HALF_FULL_EVERY) {
            (self.half_full_left, self.half_full_since) = (RECORDS_MAX, Some(now));
        }
        self.take_events();
        self.holders.rearm();
        self.quota.settle(now);
        self.full.settle(now);
        self.late.settle(now);
        self.release_exited();
        self.look_at_gpus();
        self.update_search();
        self.take_findings();
        self.look_at_replays(now);
    }

    fn ready(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            tokio::select! {
                () = self.search.ready() => {}
                () = self.holders.ready() => {}
            }
        })
    }

    fn lifecycles(&mut self) -> Vec<Lifecycle> {
        self.take_findings();
        self.take_events();
        std::mem::take(&mut self.lifecycles)
    }

    fn misses_moves(&self) -> bool {
        true
    }

    fn read(&mut self, _tenants: &mut Tenants, now: Duration) -> Result<Reading, ReadError> {
        // Ids that GPUs have now.
        self.look_at_gpus();
        let began_ns = clock::nanoseconds(sys::clock::raw());
        // Totals, then records: what the former have and the latter lack was dropped.
        for space in self.spaces.values_mut().filter(|space| space.has_counted()) {
            space.take_totals(&self.gpus);
        }
        self.flush();
        self.read_records(RECORDS_MAX);
        let lacks_faults = self.take_losses(now);
        if self.has_uncounted() {
            self.sink.doubt();
        }
        let has_ended = |space: &Space| space.has_counted() && space.phase() == Phase::Ended;
        let ended = self.spaces.iter().filter(|(_, space)| has_ended(space)).map(|(generation, _)| *generation);
        self.sink.advance(&mut self.replays, &lacks_faults, &ended.collect::<Vec<_>>(), began_ns);
        self.name_unordered(now);
        let mut reading = Reading::default();
        let mut contradictions = self.past_contradictions;
        let mut all = self.past_losses;
        for (generation, space) in self.spaces.iter_mut().filter(|(_, space)| space.has_counted()) {
            reading.counts.extend(space.counts());
            contradictions = contradictions.saturating_add(space.contradictions());
            let losses = space.losses();
            all = all.plus(losses);
            reading.losses.insert(*generation, losses);
        }
        if let Some(timeline) = &self.sink.timeline {
            reading.counts.extend(timeline.counts());
            reading.evictions.extend(timeline.evictions());
        }
        if let Some(dropped) = self.figures.dropped.get_mut(DropReason::SelfTest as usize) {
            *dropped = contradictions;
        }
        let records = |fate: &RecordFate| match fate {
            RecordFate::Written => 0,
            RecordFate::SampledOut => all.records.sampled_out,
            RecordFate::Dropped => all.records.dropped,
        };
        self.figures.records = RecordFate::ALL.iter().map(records).collect();
        Ok(reading)
    }

    fn forget(
        &mut self,
        gone: &HashSet<Generation>,
        _tenants: &mut Tenants,
        _shares_until_ns: &dyn Fn(Tenant) -> u64,
    ) -> Result<(), ReadError> {
        let is_gone =
            |generation: &Generation, space: &mut Space| gone.contains(generation) && space.phase() == Phase::Ended;
        for (generation, space) in self.spaces.extract_if(.., is_gone) {
            self.past_contradictions = self.past_contradictions.saturating_add(space.contradictions());
            self.past_losses = self.past_losses.plus(space.losses());
            if let Some(timeline) = &mut self.sink.timeline {
                timeline.forget(generation);
            }
        }
        Ok(())
    }

    fn blocks(&mut self, take: &mut dyn FnMut(BlockRecord)) {
        self.read_records(RECORDS_MAX);
        self.sink.blocks.drain(..).for_each(take);
    }

    fn figures(&self) -> &Figures {
        &self.figures
    }

    fn probes(&self) -> Option<&BTreeMap<Probe, String>> {
        None
    }

    fn degradations(&self, user: &dyn Fn(u32) -> Option<String>) -> Vec<Degradation> {
        let hang = self.holders.hung().map(|uid| holders::degradation(uid, user(uid)));
        [self.reduced.clone()]
            .into_iter()
            .chain(self.quota.degradations(user))
            .chain(hang)
            .chain(self.full.degradations(user))
            .chain(self.late.degradations(user))
            .collect()
    }

    fn warning(&self) -> Option<String> {
        let broken = self.spaces.values().find_map(|space| Some((space.opener.pid, space.broken()?)));
        let unread = broken.map(|(pid, error)| format!("records of process {pid} are not read from now on, as its queue is invalid ({error}): their access types, causes and sizes are unknown"));
        let denied = self.denied().map(str::to_owned);
        let are_held = self.spaces.values().any(Space::is_held);
        let no_replays = (self.sink.timeline.is_some() && are_held && !self.replays.are_whole())
            .then(|| "batches, replays and evictors are not complete, as records of replays are missing".to_owned());
        self.holders.warning().or_else(|| self.search.warning()).or(denied).or(unread).or(no_replays)
    }
}

/// State of a source that counts less than probes.
fn reduced(level: ToolsLevel, why: &[String]) -> Degradation {
    let why = if why.is_empty() { "collector.source is \"tools\"".to_owned() } else { why.join("; ") };
    Degradation {
        reason: DegradedReason::SourceReduced,
        uid: None,
        user: None,
        pid: None,
        description: format!(
            "counts come from the driver's tools, at level {:?}, which count less than probes: {why}",
            level.name()
        ),
    }
}

#[cfg(test)]
mod tests;
