//! Maps of the probes: records, counts and statistics.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd, OwnedFd},
};

use abi::{
    BlockRecord, CountKey, DropReason, Kind, Lifecycle, Probe, RecordFate, Released, SelfTest, Tally, Tenant, Usage,
    count::{EvictionKey, SiteKey, Space},
};
use aya::maps::{MapData, MapError, PerCpuArray};

use super::Probes;

impl Probes {
    /// Descriptor that is readable when there are lifecycle records.
    pub(crate) fn lifecycles_fd(&self) -> io::Result<OwnedFd> {
        self.lifecycles.as_fd().try_clone_to_owned()
    }

    /// Lifecycle records since the last call.
    pub fn lifecycles(&mut self) -> Vec<Lifecycle> {
        let mut records = Vec::new();
        while let Some(item) = self.lifecycles.next() {
            records.extend(Lifecycle::from_bytes(&item));
        }
        records
    }

    /// Block records since the last call; at most the capacity of the largest ring, so that a fast
    /// writer cannot keep the reader busy for ever.
    pub fn blocks(&mut self, mut take: impl FnMut(BlockRecord)) {
        const TAKEN_MAX: usize = (256 << 20) / size_of::<BlockRecord>();
        for _ in 0..TAKEN_MAX {
            let Some(item) = self.blocks.next() else { break };
            if let Some(record) = BlockRecord::from_bytes(&item) {
                take(record);
            }
        }
    }

    /// All counts, summed over CPUs.
    ///
    /// # Errors
    /// If the kernel does not permit a read of the map.
    pub fn counts(&self) -> Result<Vec<(CountKey, Tally)>, MapError> {
        let sum = |tallies: &[Tally]| {
            tallies.iter().fold(Tally::default(), |sum, tally| Tally {
                events: sum.events.saturating_add(tally.events),
                amount: sum.amount.saturating_add(tally.amount),
            })
        };
        self.counts.iter().map(|entry| entry.map(|(key, tallies)| (key, sum(&tallies)))).collect()
    }

    /// All buckets of distributions.
    ///
    /// # Errors
    /// If the kernel does not permit a read of the map.
    pub fn distributions(&self) -> Result<Vec<(CountKey, Tally)>, MapError> {
        self.distributions.iter().collect()
    }

    /// Evictions by victim and evictor.
    ///
    /// # Errors
    /// If the kernel does not permit a read of the map.
    pub fn evictions(&self) -> Result<Vec<(EvictionKey, Tally)>, MapError> {
        self.evictions.iter().collect()
    }

    /// Removes evictions that are final and read.
    ///
    /// # Errors
    /// If the kernel does not permit a change of the map.
    pub(crate) fn forget_eviction(&mut self, key: &EvictionKey) -> Result<(), MapError> {
        self.evictions.remove(key)
    }

    /// Sites of CPU faults.
    ///
    /// # Errors
    /// If the kernel does not permit a read of the map.
    pub fn sites(&self) -> Result<Vec<(SiteKey, Tally)>, MapError> {
        self.sites.iter().collect()
    }

    /// Removes a site that is final and read.
    ///
    /// # Errors
    /// If the kernel does not permit a change of the map.
    pub(crate) fn forget_site(&mut self, key: &SiteKey) -> Result<(), MapError> {
        self.sites.remove(key)
    }

    /// Removes a count that is final and read.
    ///
    /// # Errors
    /// If the kernel does not permit a change of the map.
    pub fn forget(&mut self, key: &CountKey) -> Result<(), MapError> {
        if Kind::from_index(key.kind.into()).is_some_and(Kind::is_of_distribution) {
            self.distributions.remove(key)
        } else {
            self.counts.remove(key)
        }
    }

    /// Live VA spaces.
    ///
    /// # Errors
    /// If the kernel does not permit a read of the map.
    pub fn spaces(&self) -> Result<Vec<Space>, MapError> {
        // By address: if entries are removed meanwhile, the kernel may restart with the first ones.
        let by_address: HashMap<u64, Space> = self.spaces.iter().collect::<Result<_, _>>()?;
        Ok(by_address.into_values().collect())
    }

    /// Entries of these maps by process and user.
    ///
    /// # Errors
    /// If the kernel does not permit a read of the map.
    pub fn usage(&self) -> Result<Vec<(Tenant, Usage)>, MapError> {
        self.usage.iter().collect()
    }

    /// Sets the released part of a tenant's charges.
    ///
    /// # Errors
    /// If the kernel does not permit a change of the map.
    pub fn release(&mut self, tenant: Tenant, released: Released) -> Result<(), MapError> {
        self.released.insert(tenant, released, 0)
    }

    /// Removes a tenant that holds nothing, if it is still as read; `false` if it became active
    /// meanwhile.
    ///
    /// # Errors
    /// If the kernel does not permit a change of the maps.
    pub fn forget_tenant(&mut self, tenant: Tenant, read: &Usage) -> Result<bool, MapError> {
        match self.usage.get(&tenant, 0) {
            Ok(now) if now != *read => return Ok(false),
            Ok(_) | Err(MapError::KeyNotFound) => {}
            Err(error) => return Err(error),
        }
        // In this order: a tenant that becomes active meanwhile counts with less than it holds, and
        // not more.
        for removed in [self.usage.remove(&tenant), self.released.remove(&tenant)] {
            match removed {
                Err(MapError::SyscallError(error)) if error.io_error.kind() == io::ErrorKind::NotFound => {}
                removed => removed?,
            }
        }
        Ok(true)
    }

    /// Block records by [`RecordFate`].
    ///
    /// # Errors
    /// If the kernel does not permit a read of the map.
    pub fn record_fates(&self) -> Result<Vec<u64>, MapError> {
        read(&self.records, RecordFate::COUNT)
    }

    /// Dropped events, by [`DropReason`].
    ///
    /// # Errors
    /// If the kernel does not permit a read of the map.
    pub fn dropped(&self) -> Result<Vec<u64>, MapError> {
        read(&self.dropped, DropReason::COUNT)
    }

    /// Failed self-tests, by [`SelfTest`].
    ///
    /// # Errors
    /// If the kernel does not permit a read of the map.
    pub fn self_tests(&self) -> Result<Vec<u64>, MapError> {
        read(&self.self_tests, SelfTest::COUNT)
    }

    /// Runs of the probes, by [`Probe`].
    ///
    /// # Errors
    /// If the kernel does not permit a read of the map.
    pub fn hits(&self) -> Result<Vec<u64>, MapError> {
        read(&self.hits, Probe::COUNT)
    }

    /// The driver's first fatal error since the probes were attached, as an `NV_STATUS`.
    ///
    /// # Errors
    /// If the kernel does not permit a read of the map.
    pub fn fatal_status(&self) -> Result<Option<u32>, MapError> {
        Ok(Some(self.fatal_error.get(&0, 0)?).filter(|status| *status != 0))
    }
}

fn read(array: &PerCpuArray<MapData, u64>, length: u32) -> Result<Vec<u64>, MapError> {
    (0..length).map(|index| Ok(array.get(&index, 0)?.iter().sum())).collect()
}
