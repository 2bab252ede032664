//! Output of the ledger: processes, sums and evictions.

use std::{collections::BTreeMap, time::SystemTime};

use abi::count::RecordLosses;
use model::{Blocks, EvictionPair, OwnerEvictions, Process, ProcessId};

use super::{Counts, Entry, Identity, Ledger, gpu, memory, party, sum};

impl Ledger {
    /// All processes, with the counts of them and their VA spaces, and the sums over all processes
    /// ever seen. `at`: calendar time of a time in ns since boot.
    pub(crate) fn totals(
        &self,
        user: impl Fn(u32) -> Option<String>,
        at: impl Fn(u64) -> SystemTime,
    ) -> (Vec<Process>, Counts) {
        let key = |generation, id| gpu(&self.spaces, generation, id);
        let busiest_max = memory::busiest_max(self.processes.len());
        let mut records: BTreeMap<ProcessId, RecordLosses> = BTreeMap::new();
        for space in self.spaces.values() {
            if let Some(process) = space.process {
                let losses = records.entry(process).or_default();
                *losses = sum(*losses, space.records);
            }
        }
        let mut counts: BTreeMap<ProcessId, Counts> =
            self.processes.iter().map(|(process, entry)| (*process, entry.past.clone())).collect();
        let mut totals = self.past.clone();
        for space in self.spaces.values() {
            match space.process.and_then(|process| counts.get_mut(&process)) {
                Some(counts) => counts.add_space(space),
                None => totals.add_space(space),
            }
        }
        let mut sites = self.open_sites();
        let processes = counts
            .into_iter()
            .filter_map(|(id, counts)| {
                totals.add(&counts);
                let Entry {
                    identity,
                    ended,
                    counted_from,
                    managed_bytes,
                    managed_growth,
                    command_line,
                    blocks,
                    sites: of_past,
                    past_records,
                    ..
                } = self.processes.get(&id)?;
                let Identity { name, uid, cgroup, owner, started } = identity.clone();
                let Counts { host, gpus, .. } = counts;
                let sites = of_past.published(sites.remove(&id).unwrap_or_default(), &host);
                let records = sum(*past_records, records.get(&id).copied().unwrap_or_default());
                Some(Process {
                    id,
                    started_at: started,
                    name,
                    uid,
                    user: user(uid),
                    cgroup,
                    exited_at: *ended,
                    host,
                    gpus,
                    counted_from: *counted_from,
                    managed_bytes: *managed_bytes,
                    managed_growth: managed_growth.steady(),
                    blocks: Blocks {
                        sampled_out_records: records.sampled_out,
                        dropped_records: records.dropped,
                        ..blocks.published(busiest_max, key, &at)
                    },
                    command_line: command_line.clone(),
                    owner,
                    ranges: blocks.ranges(busiest_max),
                    residency: blocks.residency(key),
                    reuse: blocks.reuse(key),
                    sites,
                    peer_reuse: blocks.peer_reuse(key),
                })
            })
            .collect();
        totals.count_batches_once();
        (processes, totals)
    }

    /// Evictions by victim and evictor.
    pub(crate) fn evictions(&self) -> Vec<EvictionPair> {
        let find = |of| self.spaces.get(&of);
        self.evictions.all(|of| party(&self.processes, find(of)), |of, id| gpu(&self.spaces, of, id))
    }

    /// Evictions by owner, of the listed owners.
    pub(crate) fn owner_evictions(&self) -> Vec<OwnerEvictions> {
        self.evictions.of_owners()
    }
}
