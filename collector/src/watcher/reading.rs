//! Reads of the source: lifecycles, counts and block records.

use std::{
    collections::HashSet,
    time::{Duration, SystemTime},
};

use abi::{Lifecycle, LifecycleKind, Owner, Tenant, TenantKind, Usage};
use model::ProcessId;
use sys::cpu_time;

use super::{State, Watcher};
use crate::{clock, ledger::Losses, source::ReadError, tenants::Shared};

impl Watcher {
    /// Processes the records of created and destroyed VA spaces.
    pub(crate) fn take_lifecycles(&mut self) {
        let State::Counting(attached) = &mut self.state else { return };
        let misses_moves = attached.source.misses_moves();
        let now = clock::since_boot(&self.config.roots).unwrap_or_default();
        let mut begun = cpu_time::of_this_thread();
        for record in attached.source.lifecycles() {
            let kind = record.kind();
            match kind {
                Some(LifecycleKind::Registered | LifecycleKind::Adopted | LifecycleKind::SharedByProcess) => {
                    let process = self.registered(&record, now);
                    tracing::debug!(pid = process.pid, ?kind, "a process opened the driver");
                    if kind == Some(LifecycleKind::Adopted) {
                        self.ledger.adopted(process, self.clock.now());
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

    /// Reads all counts, and closes destroyed VA spaces. Whether they could be read.
    pub(super) fn read_counts(&mut self) -> bool {
        // Counts of VA spaces destroyed before the reading are final in it; those created before or
        // during it are known after it.
        self.take_lifecycles();
        let closing = self.ledger.closing();
        self.take_blocks();
        let read = self.try_read_counts(&closing).inspect_err(|error| tracing::error!("{error}"));
        self.take_lifecycles();
        self.look_for_missed();
        self.clock.follow(SystemTime::now());
        let now = self.clock.now();
        self.ledger.forget(now);
        self.ledger.settle_owners(now);
        read.is_ok()
    }

    /// Finds VA spaces whose creation was missed, and ends those whose end was not reported; their
    /// counts are final at the next reading.
    fn look_for_missed(&mut self) {
        let open = self.ledger.open();
        let State::Counting(attached) = &mut self.state else { return };
        let missed = attached.source.missed(open, &self.tenants);
        if missed.some_records {
            // The process of that memory is unknown.
            self.ledger.lost_by_all(clock::not_before_now(&self.config.roots));
        }
        for generation in missed.ends {
            tracing::warn!("the record of a destroyed VA space was dropped: its process counts as exited from now on");
            self.ledger.destroyed(generation, Losses::default(), self.clock.now());
        }
    }

    fn try_read_counts(&mut self, closing: &[u64]) -> Result<(), ReadError> {
        let State::Counting(attached) = &mut self.state else { return Ok(()) };
        let before = Duration::from_nanos(clock::not_before_now(&self.config.roots));
        let reading = attached.source.read(&mut self.tenants, before)?;
        let until_ns = clock::not_before_now(&self.config.roots);
        for (generation, losses) in reading.losses {
            self.ledger.lost_by(generation, losses, until_ns);
        }
        for (key, tally) in reading.counts {
            self.ledger.count(key, tally);
        }
        for (key, tally) in reading.evictions {
            self.ledger.evicted(key, tally);
        }
        for (key, tally) in reading.sites {
            self.ledger.count_site(key, tally);
        }
        let (budget, now) = (&self.budget, Duration::from_nanos(until_ns));
        let over_until = |tenant| {
            let until = match tenant {
                Tenant::OTHER_USERS => budget.others_over_until(now),
                Tenant { id: uid, .. } => budget.over_until(uid, now),
            };
            until.map_or(0, clock::nanoseconds)
        };
        // Closed only once its keys are removed: remaining ones would count for another VA space.
        let gone: HashSet<_> = closing.iter().copied().collect();
        attached.source.forget(&gone, &mut self.tenants, &over_until)?;
        for generation in closing {
            self.ledger.close(*generation);
        }
        self.look_at_tenants()
    }

    /// Registers shared generations, ends unused ones, and forgets tenants that hold nothing.
    fn look_at_tenants(&mut self) -> Result<(), ReadError> {
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
        attached.source.forget_tenants(&mut self.tenants, now_ns)
    }

    /// Reads the block records written since the last time.
    pub(crate) fn take_blocks(&mut self) {
        // Their owners are known first.
        self.take_lifecycles();
        let State::Counting(attached) = &mut self.state else { return };
        attached.source.blocks(&mut |record| self.ledger.add_block_record(&record));
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
