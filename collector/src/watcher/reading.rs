//! Reading what the probes have: lifecycles, counts and block records.

use std::{
    collections::HashSet,
    time::{Instant, SystemTime},
};

use abi::{LifecycleKind, LostReason, count::EvictionKey};
use aya::maps::MapError;

use super::{State, Watcher, unread};
use crate::{
    clock,
    ledger::Losses,
    probes::{DISTRIBUTIONS_CAPACITY, EVICTIONS_CAPACITY},
};

/// The counts, or the distributions, are nearly full when this part of them is taken, in percent.
const NEARLY_FULL: usize = 80;

impl Watcher {
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
                    } else if attached.probes.miss_moves() {
                        self.ledger.untold(process);
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

    /// Reads every count, and closes what is gone.
    pub(super) fn read_counts(&mut self) {
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
        if attached.has_skipped() {
            // Whose memory it was about, nobody knows.
            self.ledger.lost_by_all(clock::not_before_now(&self.config.roots));
        }
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
}
