//! Absences, and what is on the GPU with them.

use std::ops::RangeInclusive;

use crate::pieces::Pieces;

/// Time of a piece away from the GPU. Places are those of launches, and continue through the next
/// iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Absence {
    /// Launch that uses the piece after it.
    pub(super) next_use: usize,
    /// Piece.
    pub(super) piece: usize,
    /// Launch behind which it leaves.
    pub(super) last_use: usize,
    /// Launch that waits until it has left.
    pub(super) left: usize,
    /// Launch behind which it comes back.
    pub(super) fetch: usize,
}

impl Absence {
    /// Absence of a piece from behind a launch that uses it to the next one that does, if a launch is
    /// between them.
    pub(super) fn behind(pieces: &Pieces, place: usize, last_use: usize) -> Option<Self> {
        let piece = pieces.all.get(place)?;
        let next_use = piece.uses.get(piece.uses.partition_point(|op| *op <= last_use)).copied();
        let next_use = next_use.or(piece.uses.first().map(|first| first + pieces.ops)).unwrap_or(last_use + pieces.ops);
        let absence = Self { next_use, piece: place, last_use, left: last_use + 1, fetch: next_use };
        (next_use >= last_use + 2).then_some(absence)
    }

    pub(super) fn is_faulted(&self) -> bool {
        self.fetch == self.next_use
    }

    /// Whether the piece is absent there.
    pub(super) fn is_at(&self, Excess { is_before, place, ops, .. }: &Excess) -> bool {
        let places = if *is_before { self.before() } else { self.during() };
        places.contains(place) || places.contains(&(place + ops))
    }

    /// Launches before which the piece is absent.
    pub(super) fn before(&self) -> RangeInclusive<usize> {
        self.left + 1..=self.fetch
    }

    /// Launches during which the piece is absent.
    pub(super) fn during(&self) -> RangeInclusive<usize> {
        self.left..=self.fetch.min(self.next_use - 1)
    }
}

/// Bytes above the limit, before or during a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Excess {
    is_before: bool,
    place: usize,
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
    /// Load without any absence.
    pub(super) fn of(pieces: &Pieces, limit_bytes: u64) -> Self {
        let mut bytes = vec![0; pieces.ops];
        for piece in &pieces.all {
            let (first, last) = match (piece.uses.first(), piece.uses.last()) {
                (Some(first), Some(last)) if !piece.outlives => (*first, *last),
                _ => (0, pieces.ops),
            };
            for bytes in bytes.iter_mut().take(last + 1).skip(first) {
                *bytes += piece.bytes;
            }
        }
        Self { before: bytes.clone(), during: bytes, limit_bytes }
    }

    pub(super) fn is_within(&self) -> bool {
        self.before.iter().chain(&self.during).all(|bytes| *bytes <= self.limit_bytes)
    }

    pub(super) fn remove(&mut self, absence: &Absence, bytes: u64) {
        for (load, places) in [(&mut self.before, absence.before()), (&mut self.during, absence.during())] {
            places.for_each(|place| *at(load, place) -= bytes);
        }
    }

    pub(super) fn add(&mut self, absence: &Absence, bytes: u64) {
        for (load, places) in [(&mut self.before, absence.before()), (&mut self.during, absence.during())] {
            places.for_each(|place| *at(load, place) += bytes);
        }
    }

    /// All places with more than the limit.
    pub(super) fn excess(&self) -> Vec<Excess> {
        let ops = self.before.len();
        let of = |is_before: bool, load: &[u64]| {
            let all = load.iter().enumerate();
            let all = all.map(|(place, bytes)| (place, bytes.saturating_sub(self.limit_bytes)));
            let above = all.filter(|(_, bytes)| *bytes > 0);
            above.map(|(place, bytes)| Excess { is_before, place, ops, bytes }).collect::<Vec<_>>()
        };
        let mut excess = of(true, &self.before);
        excess.extend(of(false, &self.during));
        excess
    }

    /// Makes an absence a shorter one, if there is room.
    pub(super) fn shorten(&mut self, absence: &mut Absence, to: Absence, bytes: u64) -> bool {
        let before = absence.before().filter(|place| !to.before().contains(place));
        let during = absence.during().filter(|place| !to.during().contains(place));
        let (before, during): (Vec<usize>, Vec<usize>) = (before.collect(), during.collect());
        let mut both = [(&mut self.before, before), (&mut self.during, during)];
        let limit_bytes = self.limit_bytes;
        let fits = both
            .iter_mut()
            .all(|(load, places)| places.iter().all(|place| at(load, *place).saturating_add(bytes) <= limit_bytes));
        if fits {
            for (load, places) in &mut both {
                for place in places.iter() {
                    *at(load, *place) += bytes;
                }
            }
            *absence = to;
        }
        fits
    }
}

/// Load at a place, of which there is one at least.
#[expect(clippy::indexing_slicing, reason = "absences are of iterations with launches")]
pub(super) fn at(load: &mut [u64], place: usize) -> &mut u64 {
    let ops = load.len();
    &mut load[place % ops]
}
