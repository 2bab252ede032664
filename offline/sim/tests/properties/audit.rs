//! Audit of a run by its events, granule by granule. It stops at the first impossible event.
#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "a test panics on unexpected values")]

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
    /// Whether it holds the contents of its tensor.
    is_valid: bool,
    /// Last residency on the GPU: its start, and its end if over.
    from_ns: Option<u64>,
    until_ns: Option<u64>,
}

pub(crate) struct Audit<'a> {
    iteration: &'a Iteration,
    ranges: HashMap<TensorId, Granules>,
    granules: HashMap<u64, Granule>,
    /// Granules on the GPU by block, and changes of the frames in use.
    frames: HashMap<u64, u64>,
    changes: Vec<(u64, i64)>,
    kernels: usize,
    /// Granules in host memory, and their maximum.
    host: HashSet<u64>,
    max_on_host: usize,
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
            max_on_host: 0,
        }
    }

    pub(crate) fn kernels(&self) -> usize {
        self.kernels
    }

    pub(crate) fn max_host_bytes(&self) -> u64 {
        self.max_on_host as u64 * GRANULE_BYTES
    }

    pub(crate) fn max_blocks(&self) -> u64 {
        let mut changes = self.changes.clone();
        // At equal times, frames are freed before others are taken.
        changes.sort_unstable();
        let (mut now, mut max) = (0, 0);
        for (_, change) in changes {
            now += change;
            max = max.max(now);
        }
        max.try_into().unwrap()
    }

    pub(crate) fn record(&mut self, event: Event) {
        match event {
            Event::Began { .. } | Event::Page { .. } => {}
            Event::Placed { tensor, range } => {
                self.ranges.insert(tensor, range);
                self.each(range, |granule| granule.is_valid = false);
            }
            Event::Written { range, on, at_ns } => {
                self.leave_gpu(range, at_ns);
                self.each(range, |granule| (granule.elsewhere, granule.is_valid) = (true, true));
                (range.first..range.end).for_each(|index| self.on_host(index, on == Tier::Host));
            }
            Event::Discarded { range, at_ns } => {
                self.leave_gpu(range, at_ns);
                (range.first..range.end).for_each(|index| self.on_host(index, false));
                self.each(range, |granule| (granule.elsewhere, granule.is_valid) = (false, false));
            }
            Event::Arrived { block, mask, with_contents, at_ns } => {
                for index in granules(block, mask) {
                    let granule = self.granules.entry(index).or_default();
                    assert!(!granule.on_gpu, "arrives on the GPU twice");
                    assert_eq!(granule.elsewhere, with_contents, "contents do not match with_contents");
                    granule.is_valid &= with_contents;
                    (granule.on_gpu, granule.elsewhere) = (true, false);
                    (granule.from_ns, granule.until_ns) = (Some(at_ns), None);
                    self.count(block, 1, at_ns);
                    self.on_host(index, false);
                }
            }
            Event::Spilled { block, mask, .. } => {
                for index in granules(block, mask) {
                    assert!(self.host.contains(&index), "spilled without being in host memory");
                    self.on_host(index, false);
                }
            }
            Event::Left { block, mask, to, at_ns } => {
                for index in granules(block, mask) {
                    let granule = self.granules.entry(index).or_default();
                    assert!(granule.on_gpu, "leaves the GPU without being there");
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
                        assert!(granule.from_ns.is_some_and(|from_ns| from_ns <= end_ns), "used before its arrival");
                        assert!(
                            granule.until_ns.is_none_or(|until_ns| until_ns >= start_ns),
                            "used after its departure"
                        );
                        assert!(!operand.access.reads() || granule.is_valid, "reads lost contents");
                        granule.is_valid = true;
                    });
                }
            }
        }
    }

    fn on_host(&mut self, index: u64, is_there: bool) {
        if is_there {
            self.host.insert(index);
            self.max_on_host = self.max_on_host.max(self.host.len());
        } else {
            self.host.remove(&index);
        }
    }

    fn each(&mut self, range: Granules, mut change: impl FnMut(&mut Granule)) {
        for index in range.first..range.end {
            change(self.granules.entry(index).or_default());
        }
    }

    fn leave_gpu(&mut self, range: Granules, at_ns: u64) {
        for index in range.first..range.end {
            let granule = self.granules.entry(index).or_default();
            if std::mem::take(&mut granule.on_gpu) {
                granule.until_ns = Some(at_ns);
                self.count(index / PER_BLOCK, -1, at_ns);
            }
        }
    }

    fn count(&mut self, block: u64, change: i64, at_ns: u64) {
        let resident = self.frames.entry(block).or_default();
        let before = *resident;
        *resident = resident.checked_add_signed(change).unwrap();
        if (before == 0) != (*resident == 0) {
            self.changes.push((at_ns, change));
        }
    }
}

fn granules(block: u64, mask: u32) -> impl Iterator<Item = u64> {
    (0..32).filter(move |bit| mask >> bit & 1 == 1).map(move |bit| block * PER_BLOCK + bit)
}
