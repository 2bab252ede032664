//! End of VA spaces and processes: their counts are added to the remaining sums.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::SystemTime,
};

use model::GpuKey;

use super::{Counts, Generation, Ledger, Losses, NO_SPACE, Presence, Space, bounds::share, gpu, owner, party, sum};

impl Ledger {
    /// Adds a VA space's counts to its process.
    pub(crate) fn close(&mut self, generation: Generation) {
        let Some(mut space) = self.spaces.remove(&generation) else { return };
        space.gpu_ids.settle();
        if generation != NO_SPACE {
            self.owners.close(&space);
        }
        self.close_evictions(generation, &space);
        let mut counts = Counts::default();
        counts.add_space(&space);
        self.past.add_handlers(&counts);
        counts.handlers.clear();
        match space.process.and_then(|process| self.processes.get_mut(&process)) {
            Some(entry) => {
                entry.past.add(&counts);
                entry.sites.add(std::mem::take(&mut space.sites));
                entry.past_records = sum(entry.past_records, space.records);
                entry.blocks.settle(generation, space.destroyed, |id| space.gpu_ids.key(id));
                if space.destroyed && entry.living == 0 {
                    entry.blocks.ended();
                }
            }
            None => self.past.add(&counts),
        }
    }

    /// Adds the evictions of a VA space, as victim and evictor, to the sums by process. `space`: it
    /// is no longer among the others.
    fn close_evictions(&mut self, generation: Generation, space: &Space) {
        let (spaces, processes) = (&self.spaces, &self.processes);
        let find = |of| if of == generation { Some(space) } else { spaces.get(&of) };
        self.evictions.close(
            generation,
            |of| party(processes, find(of)),
            |of| owner(find(of)),
            |of, id| find(of).map_or(GpuKey::Pending(id), |space| space.gpu_ids.key(id)),
        );
    }

    /// Drops the counts of open VA spaces, which turned out to be wrong.
    pub(crate) fn discard(&mut self) {
        self.evictions.discard();
        for space in self.spaces.values_mut() {
            space.tallies.clear();
            space.sites.clear();
            space.share.discard();
        }
    }

    /// Closes all VA spaces, as the probes are detached. With `ended`, the driver is unloaded too,
    /// and every VA space is destroyed.
    pub(crate) fn close_all(&mut self, ended: Option<SystemTime>) {
        let generations: Vec<_> = self.spaces.keys().copied().collect();
        for generation in generations {
            if let Some(now) = ended {
                self.destroyed(generation, Losses::default(), now);
            }
            self.close(generation);
        }
        for entry in self.processes.values_mut() {
            entry.living = 0;
        }
    }

    /// Forgets processes that exited long ago. If there are too many, the oldest of the user with
    /// most of them are forgotten: a user that starts processes without end loses its own.
    pub(crate) fn forget(&mut self, now: SystemTime) {
        let forgettable = self.processes.iter().filter(|(_, entry)| entry.presence != Presence::Here);
        let mut ended: Vec<_> =
            forgettable.filter_map(|(process, entry)| Some((entry.ended?, *process, entry.identity.uid))).collect();
        ended.sort_unstable();
        let mut by_user: BTreeMap<u32, usize> = BTreeMap::new();
        for (_, _, uid) in &ended {
            *by_user.entry(*uid).or_default() += 1;
        }
        // Users with few keep them all.
        let share = share(by_user.values().copied().collect(), self.limits.max_ended);
        let mut forgotten = BTreeSet::new();
        for (when, process, uid) in ended {
            let is_old = now.duration_since(when).is_ok_and(|age| age >= self.limits.retention);
            let of_user = by_user.entry(uid).or_default();
            if (is_old || *of_user > share)
                && let Some(entry) = self.processes.remove(&process)
            {
                *of_user -= 1;
                self.owners.forget(&entry, |generation, id| gpu(&self.spaces, generation, id));
                self.past.add(&entry.past);
                forgotten.insert(process);
            }
        }
        // All at once: thousands may exit together.
        if !forgotten.is_empty() {
            self.evictions.forget(&forgotten);
            for space in self.spaces.values_mut() {
                space.process = space.process.filter(|process| !forgotten.contains(process));
            }
        }
    }
}
