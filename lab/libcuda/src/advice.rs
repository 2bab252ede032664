//! Advice and prefetches of managed memory, as its attributes tell them.

use std::collections::BTreeMap;

use crate::backend::{Advice, Location, Range};

/// Attributes of managed memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// Duplicated on read.
    pub(crate) read_mostly: bool,
    /// Where it prefers to be.
    pub(crate) preferred: Option<Location>,
    /// Processors that keep it mapped.
    pub(crate) accessed_by: Vec<Location>,
    /// Where the last prefetch went.
    pub(crate) last_prefetch: Option<Location>,
}

impl Attributes {
    /// Attributes after advice.
    pub(crate) fn advise(&mut self, advice: Advice) {
        match advice {
            Advice::ReadMostly(set) => self.read_mostly = set,
            Advice::Preferred(location) => self.preferred = location,
            Advice::AccessedBy(location, set) => {
                self.accessed_by.retain(|other| *other != location);
                if set {
                    self.accessed_by.push(location);
                }
            }
        }
    }
}

/// Attributes by address. Each key begins a part that reaches to the next key.
#[derive(Debug)]
pub(crate) struct Parts(BTreeMap<u64, Attributes>);

impl Parts {
    /// No advice from this address on.
    pub(crate) fn new(address: u64) -> Self {
        Self(BTreeMap::from([(address, Attributes::default())]))
    }

    fn split(&mut self, at: u64) {
        if let Some((_, attributes)) = self.0.range(..=at).next_back() {
            let attributes = attributes.clone();
            self.0.entry(at).or_insert(attributes);
        }
    }

    /// Changes a range.
    pub(crate) fn change(&mut self, range: Range, mut change: impl FnMut(&mut Attributes)) {
        self.split(range.address);
        self.split(range.end());
        self.0.range_mut(range.address..range.end()).for_each(|(_, attributes)| change(attributes));
        let mut before = None;
        self.0.retain(|_, attributes| {
            let differs = before.as_ref() != Some(attributes);
            before = Some(attributes.clone());
            differs
        });
    }

    /// Attributes of all parts of a range.
    pub(crate) fn of(&self, range: Range) -> Vec<Attributes> {
        let first = self.0.range(..=range.address).next_back().map_or(range.address, |(address, _)| *address);
        self.0.range(first..range.end()).map(|(_, attributes)| attributes.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_holds_for_its_range_alone() {
        let mut parts = Parts::new(0x1000);
        let range = |address, bytes| Range { address, bytes };
        parts.change(range(0x2000, 0x1000), |attributes| attributes.advise(Advice::ReadMostly(true)));
        assert!(parts.of(range(0x2000, 0x1000)).iter().all(|part| part.read_mostly));
        assert!(!parts.of(range(0x1000, 0x1000)).iter().any(|part| part.read_mostly));
        assert_eq!(parts.of(range(0x1000, 0x4000)).len(), 3);
        parts.change(range(0x2000, 0x1000), |attributes| attributes.advise(Advice::ReadMostly(false)));
        assert_eq!(parts.of(range(0x1000, 0x4000)).len(), 1);
    }
}
