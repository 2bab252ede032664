//! Sums of owners.

use std::{collections::BTreeMap, time::SystemTime};

use model::{Counters, OwnerKey, OwnerTotals, Process};

/// Sums of the owners of these processes, which were all active at this time.
#[must_use]
pub fn owners(processes: &[Process], last_active_at: SystemTime) -> BTreeMap<OwnerKey, OwnerTotals> {
    let mut owners: BTreeMap<OwnerKey, OwnerTotals> = BTreeMap::new();
    for process in processes {
        let owner = owners.entry(process.owner.key()).or_insert_with(|| OwnerTotals {
            host: Counters::default(),
            gpus: BTreeMap::new(),
            reuse: BTreeMap::new(),
            processes: 0,
            last_active_at,
        });
        owner.processes += 1;
        owner.host += &process.host;
        for (gpu, counters) in &process.gpus {
            *owner.gpus.entry(*gpu).or_default() += counters;
        }
        for (gpu, reuse) in &process.reuse {
            *owner.reuse.entry(*gpu).or_default() += reuse;
        }
    }
    owners
}
