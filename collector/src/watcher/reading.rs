//! Reads of the probes: lifecycles, counts and block records.

use std::{
    collections::HashSet,
    time::{Duration, Instant, SystemTime},
};

use abi::{
    DropReason, Lifecycle, LifecycleKind, Owner, Tenant, TenantKind, Usage, count::EvictionKey, quota::SITES_CAPACITY,
};
use aya::maps::MapError;
use model::ProcessId;
use sys::cpu_time;

use super::{State, Watcher, tenants::Shared, unread};
use crate::{
    clock,
    ledger::Losses,
    probes::{DISTRIBUTIONS_CAPACITY, EVICTIONS_CAPACITY},
};

/// Percentage of used entries at which the counts or distributions are nearly full.
const NEARLY_FULL: usize = 80;

impl Watcher {
    /// Processes the records of created and destroyed VA spaces.
    pub(crate) fn take_lifecycles(&mut self) {
        let State::Counting(attached) = &mut self.state else { return };
        let misses_moves = attached.probes.miss_moves();
        let now = clock::since_boot(&self.config.roots).unwrap_or_default();
        let mut begun = cpu_time::of_this_thread();
        for record in attached.probes.lifecycles() {
            let kind = record.kind();
            match kind {
                Some(LifecycleKind::Registered | LifecycleKind::Adopted | LifecycleKind::SharedByProcess) => {
                    let process = self.registered(&record, now);
                    tracing::debug!(pid = process.pid, ?kind, "a process opened the driver");
                    if kind == Some(LifecycleKind::Adopted) {
                        self.ledger.adopted(process);
                    } else if misses_moves {
                        self.ledger.mark_stale(process);
                    }
                }
                // Without a known process: it counts for the totals.
                Some(LifecycleKind::SharedByUser) => self.tenants.owns(record.generation, owner(&record)),
                Some(LifecycleKind::Destroyed) => {
                    let losses = Losses { events: record.dropped_events, records: record.records };
                    self.ledger.destroyed(record.generation, losses, self.clock.now());
                }
                None => tracing::error!("a lifecycle record of unknown kind {}", record.kind),
            }
            let ended = cpu_time::of_this_thread();
            self.budget.charge(record.uid, ended.saturating_sub(begun), now);
            begun = ended;
        }
    }

    /// Registers a generation and its process.
    fn registered(&mut self, record: &Lifecycle, now: Duration) -> ProcessId {
        self.tenants.owns(record.generation, owner(record));
        let process = self.processes.id(record);
        // A known one is checked each second anyway: repeated opens of the driver do not cause
        // reads of /proc.
        let identity = match self.ledger.identity(process) {
            Some(identity) => identity.clone(),
            None if self.budget.may_look(record.uid, now) => {
                self.users.want(record.uid);
                let identity = self.processes.of_record(process, record);
                // Read at once: it may exit soon.
                self.command_lines.get(process, &identity.name);
                identity
            }
            None => self.processes.named_by(process, record),
        };
        self.ledger.registered(record.generation, process, identity);
        process
    }

    /// Reads all counts, and closes destroyed VA spaces.
    pub(super) fn read_counts(&mut self) {
        // Counts of VA spaces destroyed before the reading are final in it; those created before or
        // during it are known after it.
        self.take_lifecycles();
        let closing = self.ledger.closing();
        self.take_blocks();
        if let Err(error) = self.try_read_counts(&closing) {
            unread(&error);
        }
        self.take_lifecycles();
        self.look_for_missed();
        self.clock.follow(SystemTime::now());
        let now = self.clock.now();
        self.ledger.forget(now);
        self.ledger.settle_owners(now);
    }

    /// Finds VA spaces whose creation was missed, and ends those whose end was not reported; their
    /// counts are final at the next reading.
    fn look_for_missed(&mut self) {
        let State::Counting(attached) = &mut self.state else { return };
        attached.read_figures();
        if attached.has_skipped() {
            // The process of that memory is unknown.
            self.ledger.lost_by_all(clock::not_before_now(&self.config.roots));
        }
        attached.adopt_if_missed(Instant::now());
        let ring_full = attached.figures.dropped.get(DropReason::RingFull as usize).copied().unwrap_or_default();
        let now = Instant::now();
        if !attached.orphans.is_due(ring_full, now) {
            return;
        }
        let open = self.ledger.open();
        match attached.probes.spaces() {
            Ok(spaces) => {
                let shared = self.tenants.shared(0).into_iter().map(|shared| shared.generation);
                let known: HashSet<_> = spaces.iter().map(|space| space.generation).chain(shared).collect();
                for generation in attached.orphans.look(open, &known, ring_full, now) {
                    tracing::warn!(
                        "the record of a destroyed VA space was dropped: its process counts as exited from now on"
                    );
                    self.ledger.destroyed(generation, Losses::default(), self.clock.now());
                }
            }
            Err(error) => unread(&error),
        }
    }

    fn try_read_counts(&mut self, closing: &[u64]) -> Result<(), MapError> {
        let State::Counting(attached) = &mut self.state else { return Ok(()) };
        let probes = &mut attached.probes;
        // Before the keys: charges after this are no less than the keys.
        self.tenants.observe(probes.usage()?, clock::not_before_now(&self.config.roots));
        let mut counts = probes.counts()?;
        let mut distributions = probes.distributions()?;
        let spaces = probes.spaces()?;
        let until_ns = clock::not_before_now(&self.config.roots);
        for (generation, losses) in self.tenants.losses(&spaces) {
            self.ledger.lost_by(generation, losses, until_ns);
        }
        let mut evictions = probes.evictions()?;
        for (key, tally) in counts.iter().chain(&distributions) {
            self.ledger.count(*key, *tally);
        }
        for (key, tally) in &evictions {
            self.ledger.evicted(*key, *tally);
        }
        let mut sites = probes.sites()?;
        for (key, tally) in &sites {
            self.ledger.count_site(*key, *tally);
        }
        let maps = [
            ("counts", counts.len(), attached.counts_capacity),
            ("parts of distributions", distributions.len(), DISTRIBUTIONS_CAPACITY),
            ("pairs of evictor and victim", evictions.len(), EVICTIONS_CAPACITY),
            ("sites of CPU faults", sites.len(), SITES_CAPACITY),
        ];
        let nearly_full = maps.into_iter().find(|(_, used, capacity)| used * 100 > *capacity as usize * NEARLY_FULL);
        if let (Some((what, used, capacity)), false) = (nearly_full, self.nearly_full) {
            tracing::warn!("{used} of {capacity} {what} are in use: at the limit, events are dropped as counts_full");
        }
        self.nearly_full = nearly_full.is_some();
        // Closed only once its keys are removed: remaining ones would count for another VA space.
        let gone: HashSet<_> = closing.iter().copied().collect();
        let is_final = |key: &EvictionKey| gone.contains(&key.victim) || gone.contains(&key.evictor);
        for keys in [&mut counts, &mut distributions] {
            for (key, _) in keys.extract_if(.., |(key, _)| gone.contains(&key.generation)) {
                probes.forget(&key)?;
            }
        }
        for (key, _) in evictions.extract_if(.., |(key, _)| is_final(key)) {
            probes.forget_eviction(&key)?;
        }
        for (key, _) in sites.extract_if(.., |(key, _)| gone.contains(&key.generation)) {
            probes.forget_site(&key)?;
        }
        let keys = counts.iter().chain(&distributions).map(|(key, _)| key);
        let (budget, now) = (&self.budget, Duration::from_nanos(until_ns));
        let over_until = |tenant| {
            let until = match tenant {
                Tenant::OTHER_USERS => budget.others_over_until(now),
                Tenant { id: uid, .. } => budget.over_until(uid, now),
            };
            until.map_or(0, clock::nanoseconds)
        };
        let evictions = evictions.iter().map(|(key, _)| key);
        let sites = sites.iter().map(|(key, _)| key);
        for (tenant, released) in self.tenants.release(keys, evictions, sites, &spaces, over_until) {
            probes.release(tenant, released)?;
        }
        for generation in closing {
            self.ledger.close(*generation);
        }
        self.look_at_tenants()
    }

    /// Registers shared generations, ends unused ones, and forgets tenants that hold nothing.
    fn look_at_tenants(&mut self) -> Result<(), MapError> {
        let now_ns = clock::since_boot(&self.config.roots).map_or(0, clock::nanoseconds);
        for Shared { tenant, generation, usage, is_idle } in self.tenants.shared(now_ns) {
            let is_known = self.ledger.is_open(generation);
            if is_idle && is_known {
                self.ledger.destroyed(generation, Losses::default(), self.clock.now());
            } else if !is_idle && !is_known && tenant.kind == TenantKind::Process as u32 {
                // Its record was dropped, or it had ended and is reused.
                self.registered(&record_of(tenant, &usage), Duration::from_nanos(now_ns));
            }
        }
        let State::Counting(attached) = &mut self.state else { return Ok(()) };
        for (tenant, usage) in self.tenants.forgettable(now_ns) {
            if attached.probes.forget_tenant(tenant, &usage)? {
                self.tenants.forgotten(tenant);
            }
        }
        Ok(())
    }

    /// Reads the block records written since the last time.
    pub(crate) fn take_blocks(&mut self) {
        // Their owners are known first.
        self.take_lifecycles();
        let State::Counting(attached) = &mut self.state else { return };
        attached.probes.blocks(|record| self.ledger.add_block_record(&record));
        self.ledger.bound_blocks();
    }
}

const fn owner(record: &Lifecycle) -> Owner {
    Owner { tgid: record.tgid, uid: record.uid }
}

/// Record of a process's shared generation.
fn record_of(process: Tenant, usage: &Usage) -> Lifecycle {
    Lifecycle {
        generation: usage.shared_generation,
        start_boottime_ns: usage.start_boottime_ns,
        kind: LifecycleKind::SharedByProcess as u32,
        tgid: process.id,
        tid: process.id,
        uid: usage.uid,
        comm: usage.comm,
        ..Lifecycle::default()
    }
}
