//! Absences, and the load of the GPU with them.

use std::ops::{Range, RangeInclusive};

use crate::pieces::Pieces;

/// Absence of a piece from the GPU. Launch indices may exceed the period: they continue into the
/// next iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) struct Absence {
    /// Launch that uses the piece next.
    pub(super) next_use: usize,
    /// Index of the piece.
    pub(super) piece: usize,
    /// Size of the piece.
    pub(super) bytes: u64,
    /// Launch after which the piece leaves.
    pub(super) last_use: usize,
    /// Launch that waits until the piece has left.
    pub(super) wait: usize,
    /// Launch after which the piece is fetched.
    pub(super) fetch: usize,
}

impl Absence {
    /// Absence of a piece from launch `last_use` to the next launch that uses it; `None` if no
    /// launch is between them.
    pub(super) fn after(pieces: &Pieces, index: usize, last_use: usize) -> Option<Self> {
        let piece = pieces.all.get(index)?;
        let next_use = piece.uses.get(piece.uses.partition_point(|op| *op <= last_use)).copied();
        let next_use = next_use.or(piece.uses.first().map(|first| first + pieces.ops)).unwrap_or(last_use + pieces.ops);
        let wait = last_use + 1;
        let absence = Self { next_use, piece: index, bytes: piece.bytes, last_use, wait, fetch: next_use };
        (next_use > wait).then_some(absence)
    }

    pub(super) fn is_faulted(&self) -> bool {
        self.fetch == self.next_use
    }

    /// Launches before which the piece is absent.
    pub(super) fn before(&self) -> RangeInclusive<usize> {
        self.wait + 1..=self.fetch
    }

    /// Launches during which the piece is absent.
    pub(super) fn during(&self) -> RangeInclusive<usize> {
        self.wait..=self.fetch.min(self.next_use - 1)
    }

    /// Whether the absence reduces an excess.
    pub(super) fn covers(&self, Excess { is_before, launch, ops, .. }: &Excess) -> bool {
        let launches = if *is_before { self.before() } else { self.during() };
        launches.contains(launch) || launches.contains(&(launch + ops))
    }
}

/// Bytes above the limit, before or during a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Excess {
    is_before: bool,
    launch: usize,
    ops: usize,
    pub(super) bytes: u64,
}

/// Bytes on the GPU by launch.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) before: Vec<u64>,
    pub(super) during: Vec<u64>,
    pub(super) limit_bytes: u64,
}

impl Load {
    /// Load with these absences.
    pub(super) fn with(pieces: &Pieces, limit_bytes: u64, absences: &[Absence]) -> Self {
        let bytes = pieces.bytes_by_op();
        let mut load = Self { before: bytes.clone(), during: bytes, limit_bytes };
        for absence in absences {
            load.apply(absence);
        }
        load
    }

    pub(super) fn is_within_limit(&self) -> bool {
        self.before.iter().chain(&self.during).all(|bytes| *bytes <= self.limit_bytes)
    }

    /// Subtracts the bytes of an absence.
    pub(super) fn apply(&mut self, absence: &Absence) {
        for (load, launches) in [(&mut self.before, absence.before()), (&mut self.during, absence.during())] {
            launches.for_each(|launch| *at(load, launch) -= absence.bytes);
        }
    }

    /// Adds the bytes of an absence again.
    pub(super) fn revert(&mut self, absence: &Absence) {
        for (load, launches) in [(&mut self.before, absence.before()), (&mut self.during, absence.during())] {
            launches.for_each(|launch| *at(load, launch) += absence.bytes);
        }
    }

    /// All launches with a load above the limit.
    pub(super) fn excess(&self) -> Vec<Excess> {
        let ops = self.before.len();
        let of = |is_before: bool, load: &[u64]| {
            let all = load.iter().enumerate();
            let all = all.map(|(launch, bytes)| (launch, bytes.saturating_sub(self.limit_bytes)));
            let above = all.filter(|(_, bytes)| *bytes > 0);
            above.map(|(launch, bytes)| Excess { is_before, launch, ops, bytes }).collect::<Vec<_>>()
        };
        let mut excess = of(true, &self.before);
        excess.extend(of(false, &self.during));
        excess
    }

    /// Shortens an absence to another one within it. Returns whether there is room for that.
    pub(super) fn shorten(&mut self, absence: &mut Absence, to: Absence) -> bool {
        let (bytes, limit_bytes) = (absence.bytes, self.limit_bytes);
        let mut both = [
            (&mut self.before, range_difference(absence.before(), to.before())),
            (&mut self.during, range_difference(absence.during(), to.during())),
        ];
        let fits = both.iter_mut().all(|(load, launches)| {
            launches.iter().cloned().flatten().all(|launch| at(load, launch).saturating_add(bytes) <= limit_bytes)
        });
        if fits {
            for (load, launches) in both {
                launches.into_iter().flatten().for_each(|launch| *at(load, launch) += bytes);
            }
            *absence = to;
        }
        fits
    }
}

/// Launches of the first range that are not in the second, which is within it or empty.
fn range_difference(all: RangeInclusive<usize>, some: RangeInclusive<usize>) -> [Range<usize>; 2] {
    let (begin, end) = (*all.start(), *all.end() + 1);
    if some.is_empty() {
        return [begin..end, end..end];
    }
    [begin..*some.start(), *some.end() + 1..end]
}

/// Load at a launch, modulo the iteration, which has at least one.
#[expect(clippy::indexing_slicing, reason = "absences are of iterations with launches")]
fn at(load: &mut [u64], launch: usize) -> &mut u64 {
    let ops = load.len();
    &mut load[launch % ops]
}
