//! Exchange of absences for others with fewer bytes.
//!
//! A schedule has an absence wherever something does not fit, by the next uses or by time. Whether fewer
//! would do, or smaller ones, is not asked: one absence may be long enough for two, and a piece of the size
//! that is needed may be at hand. So each absence, and each two of them, are taken back on trial. Where
//! others with fewer bytes together suffice, these take their place.
//!
//! Complexity: limited by [`VISITS_MAX`], counted and not timed, so that plans do not depend on the machine.

use std::{cmp::Reverse, collections::BTreeSet};

use super::load::{Absence, Load};
use crate::pieces::Pieces;

/// Most absences that may take the place of others.
const OTHERS_MAX: usize = 4096;
/// Most looks at loads and absences for exchanges.
const VISITS_MAX: u64 = 1 << 25;
/// The same for a cover.
const COVER_VISITS_MAX: u64 = 1 << 22;

/// An absence, and the bytes of its piece.
type Sized = (Absence, u64);

/// Exchanges absences, which bring the load within its limit afterwards. Those that a cover of the excess
/// would have are tried as well. Whether there are any that do.
pub(super) fn exchange(pieces: &Pieces, load: &mut Load, absences: &mut Vec<Sized>) -> bool {
    let moving = pieces.all.iter().enumerate().filter(|(_, piece)| piece.moves);
    let others = moving.flat_map(|(place, piece)| {
        piece.uses.iter().filter_map(move |last_use| Some((Absence::behind(pieces, place, *last_use)?, piece.bytes)))
    });
    let mut others: Vec<Sized> = others.take(OTHERS_MAX).collect();
    others.sort_by_key(|(absence, bytes)| (*bytes, *absence));
    let mut without = load.clone();
    for (absence, bytes) in absences.iter() {
        without.add(absence, *bytes);
    }
    let by_planner =
        Exchange { load: load.clone(), present: absences.iter().copied().collect(), others: &others, visits: 0 };
    let by_cover = Exchange { load: without, present: BTreeSet::new(), others: &others, visits: 0 }.cover();
    let all = [Some(by_planner).filter(|exchange| exchange.load.is_within()), by_cover];
    let Some(best) = all.into_iter().flatten().map(Exchange::improved).min_by_key(Exchange::bytes) else {
        return false;
    };
    *load = best.load;
    *absences = best.present.into_iter().collect();
    true
}

struct Exchange<'a> {
    load: Load,
    /// All absences, by bytes.
    others: &'a [Sized],
    /// Those that there are.
    present: BTreeSet<Sized>,
    visits: u64,
}

impl Exchange<'_> {
    fn bytes(&self) -> u64 {
        self.present.iter().map(|(_, bytes)| bytes).sum()
    }

    fn improved(mut self) -> Self {
        while self.each() | self.pairs() {}
        self
    }

    /// Adds the absence that takes the most from the excess, until there is none; `None` if that needs
    /// more than there are, or too long.
    fn cover(mut self) -> Option<Self> {
        loop {
            let excess = self.load.excess();
            if excess.is_empty() {
                return Some(self);
            }
            self.visits = self.visits.saturating_add(self.others.len() as u64 * excess.len() as u64);
            if self.visits >= COVER_VISITS_MAX {
                return None;
            }
            let taken = |(absence, bytes): &Sized| -> u64 {
                let covered = excess.iter().filter(|at| absence.is_at(at));
                covered.map(|at| at.bytes.min(*bytes)).fold(0, u64::saturating_add)
            };
            let free = self.others.iter().filter(|one| !self.present.contains(*one));
            let (absence, bytes) = *free.filter(|one| taken(one) > 0).max_by_key(|one| taken(one) / one.1.max(1))?;
            self.load.remove(&absence, bytes);
            self.present.insert((absence, bytes));
        }
    }

    /// Exchanges single absences, the largest ones first. Whether there were any.
    fn each(&mut self) -> bool {
        let all = self.largest_first();
        let mut has_changed = false;
        for one in all {
            has_changed |= self.replace(&[one]);
        }
        has_changed
    }

    /// Exchanges two absences at a time. Whether there were any.
    fn pairs(&mut self) -> bool {
        let all = self.largest_first();
        for (place, one) in all.iter().enumerate() {
            for other in all.iter().skip(place + 1) {
                if self.replace(&[*one, *other]) {
                    return true;
                }
            }
        }
        false
    }

    fn largest_first(&self) -> Vec<Sized> {
        let mut all: Vec<Sized> = self.present.iter().copied().collect();
        all.sort_by_key(|(absence, bytes)| (Reverse(*bytes), *absence));
        all
    }

    /// Has others absent in the place of these, if some with fewer bytes suffice. Whether they do.
    fn replace(&mut self, these: &[Sized]) -> bool {
        if self.visits >= VISITS_MAX {
            return false;
        }
        for (absence, bytes) in these {
            self.load.add(absence, *bytes);
        }
        let Some(chosen) = self.sufficient(these.iter().map(|(_, bytes)| bytes).sum()) else {
            for (absence, bytes) in these {
                self.load.remove(absence, *bytes);
            }
            return false;
        };
        for one in these {
            self.present.remove(one);
        }
        self.present.extend(chosen);
        true
    }

    /// Absences with less than these bytes together that bring the load within its limit, which has them
    /// then; `None`, and the load as it was, if none were found.
    fn sufficient(&mut self, bytes: u64) -> Option<Vec<Sized>> {
        let mut chosen: Vec<Sized> = Vec::new();
        let mut left_bytes = bytes.saturating_sub(1);
        loop {
            let excess = self.load.excess();
            self.visits = self.visits.saturating_add(self.load.before.len() as u64);
            let Some(excess_bytes) = excess.iter().map(|one| one.bytes).max() else { return Some(chosen) };
            let mut largest = None;
            let mut smallest_that_suffices = None;
            for one in self.others {
                let (absence, bytes) = one;
                if *bytes > left_bytes {
                    break;
                }
                self.visits = self.visits.saturating_add(1 + excess.len() as u64);
                let is_free = !self.present.contains(one) && !chosen.contains(one);
                if is_free && excess.iter().all(|at| absence.is_at(at)) {
                    largest = Some(*one);
                    if *bytes >= excess_bytes {
                        smallest_that_suffices = Some(*one);
                        break;
                    }
                }
            }
            let Some((absence, bytes)) = smallest_that_suffices.or(largest) else {
                for (absence, bytes) in chosen {
                    self.load.add(&absence, bytes);
                }
                return None;
            };
            self.load.remove(&absence, bytes);
            left_bytes -= bytes;
            chosen.push((absence, bytes));
        }
    }
}

#[cfg(test)]
mod tests {
    use trace::BlockId;

    use super::*;
    use crate::pieces::Piece;

    const MIB: u64 = 1 << 20;

    /// Iteration of so many launches, with pieces of these sizes and uses.
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

    /// Pieces that are absent after an exchange, which were at first those behind these uses.
    fn exchanged(pieces: &Pieces, limit_mib: u64, first: &[(usize, usize)]) -> Option<Vec<usize>> {
        let mut load = Load::of(pieces, limit_mib * MIB);
        let absence = |(place, last_use): &(usize, usize)| Absence::behind(pieces, *place, *last_use);
        let first = first.iter().map(|one| (absence(one).unwrap(), pieces.all[one.0].bytes));
        let mut absences: Vec<Sized> = first.inspect(|(absence, bytes)| load.remove(absence, *bytes)).collect();
        exchange(pieces, &mut load, &mut absences).then(|| {
            assert!(load.is_within());
            absences.iter().map(|(absence, _)| absence.piece).collect()
        })
    }

    // All memory outlives iterations: something has to be absent before and during each launch.

    #[test]
    fn absence_that_is_long_enough_for_two_takes_their_place() {
        let uses: [&[usize]; 5] = [&[0, 4], &[3, 7], &[1, 6], &[0], &[4]];
        let pieces = pieces(9, &uses.map(|uses| (2, uses)));
        assert_eq!(exchanged(&pieces, 8, &[(0, 0), (1, 3), (2, 6)]), Some(vec![3, 2]));
    }

    #[test]
    fn smaller_pieces_that_suffice_take_the_place_of_a_larger_one() {
        let pieces = pieces(6, &[(8, &[0]), (4, &[0]), (2, &[0]), (6, &[3])]);
        assert_eq!(exchanged(&pieces, 18, &[(0, 0), (3, 3)]), Some(vec![2, 3]));
        assert_eq!(exchanged(&pieces, 14, &[(0, 0), (3, 3)]), Some(vec![1, 2, 3]));
    }

    #[test]
    fn cover_takes_the_place_of_absences_that_do_not_suffice() {
        let pieces = pieces(6, &[(8, &[0]), (4, &[0]), (4, &[3])]);
        assert_eq!(exchanged(&pieces, 12, &[]), Some(vec![1, 2]));
        assert_eq!(exchanged(&pieces, 3, &[]), None);
    }
}
