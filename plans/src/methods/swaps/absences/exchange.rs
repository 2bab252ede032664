//! Search for absences with fewer bytes.
//!
//! A schedule adds an absence wherever memory does not fit, chosen by next use or by time. It does
//! not check whether fewer or smaller absences suffice: one may be long enough to replace two, and
//! a smaller piece may be large enough. So the search tentatively removes each absence, and each
//! pair. It replaces them if other absences with fewer bytes suffice, each long enough to span all
//! of the excess. The search starts from a schedule, and from two greedy covers. A cover repeatedly
//! adds the absence that removes the most excess per byte; ties go to the first, or to the last.
//!
//! Complexity: limited by [`VISITS_MAX`], a count and not a time, so that plans do not depend on
//! the machine. At the limit, the best result so far is used.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    iter,
    ops::RangeInclusive,
};

use super::load::{Absence, Load};
use crate::pieces::Pieces;

/// Maximum number of candidate absences, longest first.
const CANDIDATES_MAX: usize = 4096;
/// Maximum number of visits of loads and absences, per starting point of the search.
const VISITS_MAX: u64 = 1 << 26;

/// Absences that bring the load within the limit, with the fewest bytes found. `None` if there are
/// none. `first`: absences of a schedule.
pub(in super::super) fn minimize(
    pieces: &Pieces,
    limit_bytes: u64,
    first: Option<Vec<Absence>>,
) -> Option<Vec<Absence>> {
    let moving = pieces.all.iter().enumerate().filter(|(_, piece)| piece.is_movable);
    let candidates = moving.flat_map(|(index, piece)| {
        piece.uses.iter().filter_map(move |last_use| Absence::after(pieces, index, *last_use))
    });
    let mut candidates: Vec<Absence> = candidates.collect();
    candidates.sort_by_key(|absence| (Reverse(absence.next_use - absence.last_use), *absence));
    candidates.truncate(CANDIDATES_MAX);
    candidates.sort_by_key(|absence| (absence.bytes, *absence));
    let search = |absences: Vec<Absence>| {
        let load = Load::with(pieces, limit_bytes, &absences);
        Search { load, candidates: &candidates, absences: absences.into_iter().collect(), visits: 0 }
    };
    let covers = [false, true].map(|takes_last| search(Vec::new()).cover(takes_last));
    let starts = iter::once(first.map(search)).chain(covers);
    let best = starts.into_iter().flatten().map(Search::improved).min_by_key(Search::bytes)?;
    Some(best.absences.into_iter().collect())
}

/// Search state: absences that bring the load within its limit.
struct Search<'a> {
    load: Load,
    /// Candidates, sorted by bytes.
    candidates: &'a [Absence],
    /// Current absences.
    absences: BTreeSet<Absence>,
    visits: u64,
}

impl Search<'_> {
    fn bytes(&self) -> u64 {
        self.absences.iter().map(|absence| absence.bytes).fold(0, u64::saturating_add)
    }

    fn is_exhausted(&self) -> bool {
        self.visits >= VISITS_MAX
    }

    fn visit(&mut self, count: usize) {
        self.visits = self.visits.saturating_add(count as u64);
    }

    /// Exchanges absences until no exchange saves bytes.
    fn improved(mut self) -> Self {
        self.visits = 0;
        while self.exchange_single() | self.exchange_pair() {}
        self
    }

    /// Repeatedly adds the absence that removes the most excess per byte, until all memory fits.
    /// Ties go to the first absence, or to the last if `takes_last`. `None` if the candidates or
    /// visits do not suffice.
    fn cover(mut self, takes_last: bool) -> Option<Self> {
        let ops = self.load.before.len();
        while !self.load.is_within_limit() {
            // Prefix sums over launches, by the bytes of an absence.
            let mut sums: BTreeMap<u64, [Vec<u64>; 2]> = BTreeMap::new();
            let mut best: Option<(u64, Absence)> = None;
            for absence in self.candidates.iter().filter(|absence| !self.absences.contains(absence)) {
                let sums = sums.entry(absence.bytes).or_insert_with(|| {
                    [&self.load.before, &self.load.during]
                        .map(|load| excess_sums(load, self.load.limit_bytes, absence.bytes))
                });
                let [before, during] = sums;
                let of = |sums: &[u64], launches: RangeInclusive<usize>| {
                    let sum = |end: usize| sums.get(end).copied().unwrap_or(0);
                    sum(*launches.end() + 1).saturating_sub(sum(*launches.start()))
                };
                let taken_bytes = of(before, absence.before()).saturating_add(of(during, absence.during()));
                let gain = taken_bytes / absence.bytes.max(1);
                if taken_bytes > 0 && best.is_none_or(|(most, _)| gain > most || (takes_last && gain == most)) {
                    best = Some((gain, *absence));
                }
            }
            let classes = sums.len();
            self.visit(self.candidates.len().saturating_add(ops.saturating_mul(4).saturating_mul(classes)));
            let (_, absence) = best.filter(|_| !self.is_exhausted())?;
            self.load.apply(&absence);
            self.absences.insert(absence);
        }
        Some(self)
    }

    /// Exchanges single absences, the largest first. Returns whether any was exchanged.
    fn exchange_single(&mut self) -> bool {
        let mut has_changed = false;
        for one in self.largest_first() {
            has_changed |= self.replace(&[one]);
        }
        has_changed
    }

    /// Exchanges the first pair of absences with a saving. Returns whether there was one.
    fn exchange_pair(&mut self) -> bool {
        let all = self.largest_first();
        for (index, one) in all.iter().enumerate() {
            for other in all.iter().skip(index + 1) {
                if self.is_exhausted() {
                    return false;
                }
                if self.replace(&[*one, *other]) {
                    return true;
                }
            }
        }
        false
    }

    fn largest_first(&self) -> Vec<Absence> {
        let mut all: Vec<Absence> = self.absences.iter().copied().collect();
        all.sort_by_key(|absence| (Reverse(absence.bytes), *absence));
        all
    }

    /// Replaces absences with candidates of fewer bytes, if those suffice. Returns whether they do.
    fn replace(&mut self, old: &[Absence]) -> bool {
        if self.is_exhausted() {
            return false;
        }
        for absence in old {
            self.visit(absence.next_use - absence.last_use);
            self.load.revert(absence);
            self.absences.remove(absence);
        }
        let chosen = self.find_sufficient(old.iter().map(|absence| absence.bytes).fold(0, u64::saturating_add));
        let has_saving = chosen.is_some();
        for absence in chosen.unwrap_or_else(|| old.to_vec()) {
            if !has_saving {
                self.load.apply(&absence);
            }
            self.absences.insert(absence);
        }
        has_saving
    }

    /// Finds absences of fewer than `bytes` in total that bring the load within its limit, and
    /// applies them to it. If there are none, returns `None` and leaves the load unchanged.
    fn find_sufficient(&mut self, bytes: u64) -> Option<Vec<Absence>> {
        let mut chosen: Vec<Absence> = Vec::new();
        let mut remaining_bytes = bytes.saturating_sub(1);
        loop {
            let excess = self.load.excess();
            self.visit(2 * self.load.before.len());
            let Some(excess_bytes) = excess.iter().map(|one| one.bytes).max() else { return Some(chosen) };
            // The smallest that suffices, or else the largest.
            let mut next = None;
            for absence in self.candidates.iter().take_while(|absence| absence.bytes <= remaining_bytes) {
                self.visits = self.visits.saturating_add((1 + excess.len() + chosen.len()) as u64);
                if self.is_exhausted() {
                    next = None;
                    break;
                }
                let is_unused = !self.absences.contains(absence) && !chosen.contains(absence);
                if is_unused && excess.iter().all(|at| absence.covers(at)) {
                    next = Some(*absence);
                    if absence.bytes >= excess_bytes {
                        break;
                    }
                }
            }
            let Some(absence) = next else {
                for absence in chosen {
                    self.load.revert(&absence);
                }
                return None;
            };
            self.load.apply(&absence);
            remaining_bytes -= absence.bytes;
            chosen.push(absence);
        }
    }
}

/// Prefix sums, over two consecutive iterations, of the excess that an absence of these bytes
/// removes.
fn excess_sums(load: &[u64], limit_bytes: u64, bytes: u64) -> Vec<u64> {
    let mut sums = vec![0];
    let mut sum = 0_u64;
    for at in load.iter().chain(load).chain(load.first()) {
        sum = sum.saturating_add(at.saturating_sub(limit_bytes).min(bytes));
        sums.push(sum);
    }
    sums
}

#[cfg(test)]
mod tests {
    use trace::BlockId;

    use super::*;
    use crate::pieces::Piece;

    const MIB: u64 = 1 << 20;

    /// Iteration of `ops` launches, with pieces of these sizes and uses.
    fn pieces(ops: usize, all: &[(u64, &[usize])]) -> Pieces {
        let piece = |(at, (mib, uses)): (usize, &(u64, &[usize]))| Piece {
            block: BlockId(0),
            address: at as u64 * 2 * MIB,
            bytes: mib * MIB,
            is_managed: true,
            is_movable: true,
            outlives: true,
            uses: uses.to_vec(),
        };
        Pieces { ops, all: all.iter().enumerate().map(piece).collect() }
    }

    /// Pieces absent after an exchange; `first` has the piece and last use of each initial absence.
    fn exchanged(pieces: &Pieces, limit_mib: u64, first: Option<&[(usize, usize)]>) -> Option<Vec<usize>> {
        let absence = |(index, last_use): &(usize, usize)| Absence::after(pieces, *index, *last_use).unwrap();
        let first = first.map(|first| first.iter().map(absence).collect::<Vec<_>>());
        if let Some(first) = &first {
            assert!(Load::with(pieces, limit_mib * MIB, first).is_within_limit());
        }
        let absences = minimize(pieces, limit_mib * MIB, first)?;
        assert!(Load::with(pieces, limit_mib * MIB, &absences).is_within_limit());
        Some(absences.iter().map(|absence| absence.piece).collect())
    }

    // All memory outlives iterations: something has to be absent before and during each launch.

    #[test]
    fn one_long_absence_replaces_two() {
        let uses: [&[usize]; 5] = [&[0, 4], &[3, 7], &[1, 6], &[0], &[4]];
        let pieces = pieces(9, &uses.map(|uses| (2, uses)));
        assert_eq!(exchanged(&pieces, 8, Some(&[(0, 0), (1, 3), (2, 6)])), Some(vec![3, 2]));
    }

    #[test]
    fn smaller_sufficient_pieces_replace_a_larger_one() {
        let pieces = pieces(6, &[(8, &[0]), (4, &[0]), (2, &[0]), (6, &[3])]);
        assert_eq!(exchanged(&pieces, 18, Some(&[(0, 0), (3, 3)])), Some(vec![2, 3]));
        assert_eq!(exchanged(&pieces, 14, Some(&[(0, 0), (3, 3)])), Some(vec![1, 2, 3]));
    }

    #[test]
    fn without_a_schedule_a_greedy_cover_is_used() {
        let pieces = pieces(6, &[(8, &[0]), (4, &[0]), (4, &[3])]);
        assert_eq!(exchanged(&pieces, 12, None), Some(vec![1, 2]));
        assert_eq!(exchanged(&pieces, 3, None), None);
    }
}
