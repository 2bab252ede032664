//! Frames of a GPU's memory, each with a block, in the driver's eviction order: by age of arrival.

use std::collections::BTreeMap;

use model::ProcessId;

type Resident = (ProcessId, u64);

#[derive(Debug)]
pub(crate) struct Frames {
    count: usize,
    by_age: BTreeMap<u64, Resident>,
    ages: BTreeMap<Resident, u64>,
    next: u64,
}

impl Frames {
    pub(crate) const fn new(count: usize) -> Self {
        Self { count, by_age: BTreeMap::new(), ages: BTreeMap::new(), next: 0 }
    }

    pub(crate) const fn count(&self) -> usize {
        self.count
    }

    pub(crate) fn is_full(&self) -> bool {
        self.by_age.len() >= self.count
    }

    pub(crate) fn contains(&self, process: ProcessId, block: u64) -> bool {
        self.ages.contains_key(&(process, block))
    }

    /// A block arrives, or moves to the end.
    pub(crate) fn take(&mut self, process: ProcessId, block: u64) {
        if let Some(age) = self.ages.insert((process, block), self.next) {
            self.by_age.remove(&age);
        }
        self.by_age.insert(self.next, (process, block));
        self.next += 1;
    }

    /// The block that arrived first is evicted.
    pub(crate) fn free_oldest(&mut self) -> Option<Resident> {
        let (_, evicted) = self.by_age.pop_first()?;
        self.ages.remove(&evicted);
        Some(evicted)
    }
}
