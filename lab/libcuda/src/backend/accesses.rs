//! Memory of the window that operations access, for the log.

use std::collections::BTreeMap;

use ptx::{Access, GRANULE_BYTES};
use serde_json::{Value, json};

use super::Range;

const READ: u8 = 1 << 0;
const WRITTEN: u8 = 1 << 1;

/// Memory that one operation has accessed, by granules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Accesses {
    granules: BTreeMap<u64, u8>,
}

/// Log line of the call that submitted an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Number of the line; 0 without a log.
    pub(crate) line: u64,
    /// Stream.
    pub(crate) stream: u64,
    /// Place of the node among those of the line, if it is of a graph.
    pub(crate) node: Option<usize>,
}

impl Origin {
    /// No call that is logged.
    pub(crate) const NONE: Self = Self { line: 0, stream: 0, node: None };
}

impl Accesses {
    /// Adds an access to a range. An atomic reads and writes.
    pub(crate) fn add(&mut self, Range { address, bytes }: Range, access: Access) {
        let bits = match access {
            Access::Read => READ,
            Access::Write => WRITTEN,
            Access::Atomic => READ | WRITTEN,
        };
        if let Some(last) = bytes.checked_sub(1) {
            for granule in address / GRANULE_BYTES..=address.saturating_add(last) / GRANULE_BYTES {
                *self.granules.entry(granule).or_default() |= bits;
            }
        }
    }

    /// Granules that were accessed, by their first addresses.
    pub(crate) fn granules(&self) -> impl Iterator<Item = u64> {
        self.granules.keys().map(|granule| granule * GRANULE_BYTES)
    }

    /// Runs of granules that were read, or written. `end_of` has the end of the allocation of an
    /// address, where a run ends; runs outside of allocations are left out.
    fn runs(&self, bit: u8, end_of: impl Fn(u64) -> Option<u64>) -> Vec<[u64; 2]> {
        let mut runs: Vec<Range> = Vec::new();
        for (granule, _) in self.granules.iter().filter(|(_, bits)| **bits & bit != 0) {
            let address = granule * GRANULE_BYTES;
            match runs.last_mut() {
                Some(run) if run.end() == address => run.bytes += GRANULE_BYTES,
                _ => runs.push(Range { address, bytes: GRANULE_BYTES }),
            }
        }
        // Between allocations there is a granule that nothing accesses.
        let cut = |run: Range| Some([run.address, run.end().min(end_of(run.address)?) - run.address]);
        runs.into_iter().filter_map(cut).collect()
    }

    /// Line of the log.
    pub(crate) fn describe(&self, origin: Origin, end_of: impl Fn(u64) -> Option<u64>) -> Value {
        let mut line =
            json!({ "of": origin.line, "read": self.runs(READ, &end_of), "written": self.runs(WRITTEN, &end_of) });
        if let (Some(node), Some(line)) = (origin.node, line.as_object_mut()) {
            line.insert("node".into(), node.into());
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_of_granules_and_end_with_their_allocation() {
        let mut accesses = Accesses::default();
        let at = |granule: u64| granule * GRANULE_BYTES;
        accesses.add(Range { address: at(2) + 100, bytes: 1 }, Access::Read);
        accesses.add(Range { address: at(3), bytes: GRANULE_BYTES + 1 }, Access::Write);
        accesses.add(Range { address: at(3), bytes: 4 }, Access::Atomic);
        accesses.add(Range { address: at(9), bytes: 0 }, Access::Write);
        assert_eq!(accesses.granules().collect::<Vec<_>>(), [at(2), at(3), at(4)]);
        let line = accesses.describe(Origin { line: 7, stream: 1, node: None }, |_| Some(at(4) + 12));
        assert_eq!(
            line,
            json!({ "of": 7, "read": [[at(2), 2 * GRANULE_BYTES]], "written": [[at(3), GRANULE_BYTES + 12]] })
        );
    }

    #[test]
    fn accesses_of_a_node_name_it_and_memory_of_nobody_is_left_out() {
        let mut accesses = Accesses::default();
        accesses.add(Range { address: GRANULE_BYTES, bytes: 8 }, Access::Read);
        let line = accesses.describe(Origin { line: 7, stream: 1, node: Some(5) }, |_| None);
        assert_eq!(line, json!({ "of": 7, "node": 5, "read": [], "written": [] }));
    }
}
