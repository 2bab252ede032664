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
const OTHERS_MAX: usize = 4096;
/// Maximum number of visits of loads and absences, per start of the search.
const VISITS_MAX: u64 = 1 << 26;

/// Absences with the fewest bytes found that bring the load within the limit; `first` has the
/// absences of a schedule. `None` without such absences.
pub(in super::super) fn least(pieces: &Pieces, limit_bytes: u64, first: Option<Vec<Absence>>) -> Option<Vec<Absence>> {
    let moving = pieces.all.iter().enumerate().filter(|(_, piece)| piece.moves);
    let others = moving.flat_map(|(place, piece)| {
        piece.uses.iter().filter_map(move |last_use| Absence::after(pieces, place, *last_use))
    });
    let mut others: Vec<Absence> = others.collect();
    others.sort_by_key(|absence| (Reverse(absence.next_use - absence.last_use), *absence));
    others.truncate(OTHERS_MAX);
    others.sort_by_key(|absence| (absence.bytes, *absence));
    let search = |present: Vec<Absence>| {
        let load = Load::with(pieces, limit_bytes, &present);
        Search { load, others: &others, present: present.into_iter().collect(), visits: 0 }
    };
    let covers = [false, true].map(|takes_last| search(Vec::new()).cover(takes_last));
    let begins = iter::once(first.map(search)).chain(covers);
    let best = begins.into_iter().flatten().map(Search::improved).min_by_key(Search::bytes)?;
    Some(best.present.into_iter().collect())
}

/// Search state: absences that bring the load within its limit.
struct Search<'a> {
    load: Load,
    /// Candidates, sorted by bytes.
    others: &'a [Absence],
    /// Current absences.
    present: BTreeSet<Absence>,
    visits: u64,
}

impl Search<'_> {
    fn bytes(&self) -> u64 {
        self.present.iter().map(|absence| absence.bytes).fold(0, u64::saturating_add)
    }

    fn is_over(&self) -> bool {
        self.visits >= VISITS_MAX
    }

    fn visit(&mut self, count: usize) {
        self.visits = self.visits.saturating_add(count as u64);
    }

    /// Exchanges absences until no exchange saves bytes.
    fn improved(mut self) -> Self {
        self.visits = 0;
        while self.each() | self.pairs() {}
        self
    }

    /// Repeatedly adds the absence that removes the most excess per byte, until all memory fits.
    /// Ties go to the first absence, or to the last if `takes_last`. `None` if the candidates or
    /// visits do not suffice.
    fn cover(mut self, takes_last: bool) -> Option<Self> {
        let ops = self.load.before.len();
        while !self.load.is_within() {
            // Prefix sums over launches, by the bytes of an absence.
            let mut sums: BTreeMap<u64, [Vec<u64>; 2]> = BTreeMap::new();
            let mut best: Option<(u64, Absence)> = None;
            for absence in self.others.iter().filter(|absence| !self.present.contains(absence)) {
                let sums = sums.entry(absence.bytes).or_insert_with(|| {
                    [&self.load.before, &self.load.during].map(|load| taken(load, self.load.limit_bytes, absence.bytes))
                });
                let [before, during] = sums;
                let of = |sums: &[u64], places: RangeInclusive<usize>| {
                    let sum = |end: usize| sums.get(end).copied().unwrap_or(0);
                    sum(*places.end() + 1).saturating_sub(sum(*places.start()))
                };
                let taken_bytes = of(before, absence.before()).saturating_add(of(during, absence.during()));
                let gain = taken_bytes / absence.bytes.max(1);
                if taken_bytes > 0 && best.is_none_or(|(most, _)| gain > most || (takes_last && gain == most)) {
                    best = Some((gain, *absence));
                }
            }
            let classes = sums.len();
            self.visit(self.others.len().saturating_add(ops.saturating_mul(4).saturating_mul(classes)));
            let (_, absence) = best.filter(|_| !self.is_over())?;
            self.load.remove(&absence);
            self.present.insert(absence);
        }
        Some(self)
    }

    /// Exchanges single absences, the largest first. Returns whether any was exchanged.
    fn each(&mut self) -> bool {
        let mut has_changed = false;
        for one in self.largest_first() {
            has_changed |= self.replace(&[one]);
        }
        has_changed
    }

    /// Exchanges the first pair of absences with a saving. Returns whether there was one.
    fn pairs(&mut self) -> bool {
        let all = self.largest_first();
        for (place, one) in all.iter().enumerate() {
            for other in all.iter().skip(place + 1) {
                if self.is_over() {
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
        let mut all: Vec<Absence> = self.present.iter().copied().collect();
        all.sort_by_key(|absence| (Reverse(absence.bytes), *absence));
        all
    }

    /// Replaces absences with others of fewer bytes, if those suffice. Returns whether they do.
    fn replace(&mut self, these: &[Absence]) -> bool {
        if self.is_over() {
            return false;
        }
        for absence in these {
            self.visit(absence.next_use - absence.last_use);
            self.load.add(absence);
            self.present.remove(absence);
        }
        let chosen = self.sufficient(these.iter().map(|absence| absence.bytes).fold(0, u64::saturating_add));
        let is_gain = chosen.is_some();
        for absence in chosen.unwrap_or_else(|| these.to_vec()) {
            if !is_gain {
                self.load.remove(&absence);
            }
            self.present.insert(absence);
        }
        is_gain
    }

    /// Finds absences of fewer than `bytes` in total that bring the load within its limit, and
    /// applies them to it. `None`, with the load unchanged, without such absences.
    fn sufficient(&mut self, bytes: u64) -> Option<Vec<Absence>> {
        let mut chosen: Vec<Absence> = Vec::new();
        let mut left_bytes = bytes.saturating_sub(1);
        loop {
            let excess = self.load.excess();
            self.visit(2 * self.load.before.len());
            let Some(excess_bytes) = excess.iter().map(|one| one.bytes).max() else { return Some(chosen) };
            // The smallest that suffices, or else the largest.
            let mut next = None;
            for absence in self.others.iter().take_while(|absence| absence.bytes <= left_bytes) {
                self.visits = self.visits.saturating_add((1 + excess.len() + chosen.len()) as u64);
                if self.is_over() {
                    next = None;
                    break;
                }
                let is_free = !self.present.contains(absence) && !chosen.contains(absence);
                if is_free && excess.iter().all(|at| absence.is_at(at)) {
                    next = Some(*absence);
                    if absence.bytes >= excess_bytes {
                        break;
                    }
                }
            }
            let Some(absence) = next else {
                for absence in chosen {
                    self.load.add(&absence);
                }
                return None;
            };
            self.load.remove(&absence);
            left_bytes -= absence.bytes;
            chosen.push(absence);
        }
    }
}

/// Prefix sums, over two consecutive iterations, of the excess that an absence of these bytes
/// removes.
fn taken(load: &[u64], limit_bytes: u64, bytes: u64) -> Vec<u64> {
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
            moves: true,
            outlives: true,
            uses: uses.to_vec(),
        };
        Pieces { ops, all: all.iter().enumerate().map(piece).collect() }
    }

    /// Pieces absent after an exchange; `first` has the piece and last use of each initial absence.
    fn exchanged(pieces: &Pieces, limit_mib: u64, first: Option<&[(usize, usize)]>) -> Option<Vec<usize>> {
        let absence = |(place, last_use): &(usize, usize)| Absence::after(pieces, *place, *last_use).unwrap();
        let first = first.map(|first| first.iter().map(absence).collect::<Vec<_>>());
        if let Some(first) = &first {
            assert!(Load::with(pieces, limit_mib * MIB, first).is_within());
        }
        let absences = least(pieces, limit_mib * MIB, first)?;
        assert!(Load::with(pieces, limit_mib * MIB, &absences).is_within());
        Some(absences.iter().map(|absence| absence.piece).collect())
    }

    // All memory outlives iterations: something has to be absent before and during each launch.

    #[test]
    fn absence_that_is_long_enough_for_two_takes_their_place() {
        let uses: [&[usize]; 5] = [&[0, 4], &[3, 7], &[1, 6], &[0], &[4]];
        let pieces = pieces(9, &uses.map(|uses| (2, uses)));
        assert_eq!(exchanged(&pieces, 8, Some(&[(0, 0), (1, 3), (2, 6)])), Some(vec![3, 2]));
    }

    #[test]
    fn smaller_pieces_that_suffice_take_the_place_of_a_larger_one() {
        let pieces = pieces(6, &[(8, &[0]), (4, &[0]), (2, &[0]), (6, &[3])]);
        assert_eq!(exchanged(&pieces, 18, Some(&[(0, 0), (3, 3)])), Some(vec![2, 3]));
        assert_eq!(exchanged(&pieces, 14, Some(&[(0, 0), (3, 3)])), Some(vec![1, 2, 3]));
    }

    #[test]
    fn without_a_schedule_there_are_those_of_a_cover() {
        let pieces = pieces(6, &[(8, &[0]), (4, &[0]), (4, &[3])]);
        assert_eq!(exchanged(&pieces, 12, None), Some(vec![1, 2]));
        assert_eq!(exchanged(&pieces, 3, None), None);
    }
}
