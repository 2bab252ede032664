//! Follows a run by its events, granule by granule, and stops at the first that cannot be.
#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test stops at what cannot be")]

use std::collections::{HashMap, HashSet};

use planner::Tier;
use sim::{
    Event,
    units::{GRANULE_BYTES, Granules},
};
use trace::{Iteration, TensorId};

const PER_BLOCK: u64 = 32;

#[derive(Clone, Copy, Default)]
struct Granule {
    on_gpu: bool,
    elsewhere: bool,
    /// Holds what its tensor was given.
    meant: bool,
    /// The last time on the GPU: from, and until if it is over.
    from_ns: Option<u64>,
    until_ns: Option<u64>,
}

pub(crate) struct Audit<'a> {
    iteration: &'a Iteration,
    ranges: HashMap<TensorId, Granules>,
    granules: HashMap<u64, Granule>,
    /// Granules on the GPU by block; and when blocks took a frame or gave it back.
    frames: HashMap<u64, u64>,
    changes: Vec<(u64, i64)>,
    kernels: usize,
    /// Granules in host memory, and the most that ever were.
    host: HashSet<u64>,
    most_on_host: usize,
}

impl<'a> Audit<'a> {
    pub(crate) fn new(iteration: &'a Iteration) -> Self {
        Self {
            iteration,
            ranges: HashMap::new(),
            granules: HashMap::new(),
            frames: HashMap::new(),
            changes: Vec::new(),
            kernels: 0,
            host: HashSet::new(),
            most_on_host: 0,
        }
    }

    pub(crate) fn kernels(&self) -> usize {
        self.kernels
    }

    pub(crate) fn most_host_bytes(&self) -> u64 {
        self.most_on_host as u64 * GRANULE_BYTES
    }

    pub(crate) fn most_blocks(&self) -> u64 {
        let mut changes = self.changes.clone();
        // A frame that is given back can be taken at the same time.
        changes.sort_unstable();
        let (mut now, mut most) = (0, 0);
        for (_, change) in changes {
            now += change;
            most = most.max(now);
        }
        most.try_into().unwrap()
    }

    pub(crate) fn see(&mut self, event: Event) {
        match event {
            Event::Began { .. } | Event::Page { .. } => {}
            Event::Placed { tensor, range } => {
                self.ranges.insert(tensor, range);
                self.each(range, |granule| granule.meant = false);
            }
            Event::Written { range, on, at_ns } => {
                self.go(range, at_ns);
                self.each(range, |granule| (granule.elsewhere, granule.meant) = (true, true));
                (range.first..range.end).for_each(|index| self.on_host(index, on == Tier::Host));
            }
            Event::Discarded { range, at_ns } => {
                self.go(range, at_ns);
                (range.first..range.end).for_each(|index| self.on_host(index, false));
                self.each(range, |granule| (granule.elsewhere, granule.meant) = (false, false));
            }
            Event::Arrived { block, mask, with_contents, at_ns } => {
                for index in granules(block, mask) {
                    let granule = self.granules.entry(index).or_default();
                    assert!(!granule.on_gpu, "arrives twice");
                    assert_eq!(granule.elsewhere, with_contents, "arrives with what is nowhere, or without what is");
                    granule.meant &= with_contents;
                    (granule.on_gpu, granule.elsewhere) = (true, false);
                    (granule.from_ns, granule.until_ns) = (Some(at_ns), None);
                    self.count(block, 1, at_ns);
                    self.on_host(index, false);
                }
            }
            Event::Spilled { block, mask, .. } => {
                for index in granules(block, mask) {
                    assert!(self.host.contains(&index), "goes to flash from where it is not");
                    self.on_host(index, false);
                }
            }
            Event::Left { block, mask, to, at_ns } => {
                for index in granules(block, mask) {
                    let granule = self.granules.entry(index).or_default();
                    assert!(granule.on_gpu, "leaves without being there");
                    (granule.on_gpu, granule.elsewhere, granule.until_ns) = (false, true, Some(at_ns));
                    self.count(block, -1, at_ns);
                    self.on_host(index, to == Tier::Host);
                }
            }
            Event::Ran { kernel, start_ns, end_ns } => {
                assert!(start_ns <= end_ns);
                self.kernels += 1;
                for operand in self.iteration.operands(kernel) {
                    let range = self.ranges[&operand.tensor];
                    self.each(range, |granule| {
                        assert!(granule.from_ns.is_some_and(|from_ns| from_ns <= end_ns), "used before it is there");
                        assert!(granule.until_ns.is_none_or(|until_ns| until_ns >= start_ns), "used after it is gone");
                        assert!(!operand.access.reads() || granule.meant, "reads what was lost");
                        granule.meant = true;
                    });
                }
            }
        }
    }

    fn on_host(&mut self, index: u64, is_there: bool) {
        if is_there {
            self.host.insert(index);
            self.most_on_host = self.most_on_host.max(self.host.len());
        } else {
            self.host.remove(&index);
        }
    }

    fn each(&mut self, range: Granules, mut change: impl FnMut(&mut Granule)) {
        for index in range.first..range.end {
            change(self.granules.entry(index).or_default());
        }
    }

    fn go(&mut self, range: Granules, at_ns: u64) {
        for index in range.first..range.end {
            let granule = self.granules.entry(index).or_default();
            if std::mem::take(&mut granule.on_gpu) {
                granule.until_ns = Some(at_ns);
                self.count(index / PER_BLOCK, -1, at_ns);
            }
        }
    }

    fn count(&mut self, block: u64, change: i64, at_ns: u64) {
        let here = self.frames.entry(block).or_default();
        let before = *here;
        *here = here.checked_add_signed(change).unwrap();
        if (before == 0) != (*here == 0) {
            self.changes.push((at_ns, change));
        }
    }
}

fn granules(block: u64, mask: u32) -> impl Iterator<Item = u64> {
    (0..32).filter(move |bit| mask >> bit & 1 == 1).map(move |bit| block * PER_BLOCK + bit)
}
