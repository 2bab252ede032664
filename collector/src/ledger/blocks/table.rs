//! Compact table of blocks by number, which forgets those not seen for longest.
//!
//! The states are in one vector, which grows by an eighth; beside it is a hash table of positions
//! in it, of five bytes each. A table that doubles as a whole would need three times the memory
//! meanwhile.

use hashbrown::HashTable;

use super::seen::Seen;

/// Part of a full table that is forgotten at once, so that the search for the oldest is rare.
const ROOM: usize = 8;
/// Minimum growth: with less, small tables would be copied often.
const GROWTH_MIN: usize = 8;

/// Table of blocks.
#[derive(Debug, Default)]
pub(super) struct Table {
    blocks: Vec<Seen>,
    /// Position in `blocks` by number.
    places: HashTable<u32>,
}

impl Table {
    /// Number of blocks.
    pub(super) const fn len(&self) -> usize {
        self.blocks.len()
    }

    /// State of a block.
    pub(super) fn get(&self, number: u64) -> Option<&Seen> {
        let place = self.places.find(hash(number), is(&self.blocks, number))?;
        self.blocks.get(*place as usize)
    }

    /// The same, mutable.
    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut Seen> {
        let place = self.places.find(hash(number), is(&self.blocks, number))?;
        self.blocks.get_mut(*place as usize)
    }

    /// Block of that number, and whether it is new. `max`: maximum of blocks, beyond which no
    /// memory is allocated.
    pub(super) fn entry(&mut self, number: u64, max: usize) -> Option<(&mut Seen, bool)> {
        let Self { blocks, places } = self;
        if let Some(place) = places.find(hash(number), is(blocks, number)) {
            return Some((blocks.get_mut(*place as usize)?, false));
        }
        let place = blocks.len();
        if blocks.capacity() == place {
            blocks.reserve_exact((place / ROOM).max(GROWTH_MIN).min(max.saturating_sub(place)).max(1));
        }
        blocks.push(Seen::new(number));
        places.insert_unique(hash(number), u32::try_from(place).ok()?, |place| hash_at(blocks, *place));
        Some((blocks.last_mut()?, true))
    }

    /// All blocks, unordered.
    pub(super) fn iter(&self) -> std::slice::Iter<'_, Seen> {
        self.blocks.iter()
    }

    /// All blocks, unordered and mutable.
    pub(super) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Seen> {
        self.blocks.iter_mut()
    }

    /// Number of blocks that a full table forgets.
    pub(super) fn room(&self) -> usize {
        (self.len() / ROOM).max(1)
    }

    /// Forgets this many blocks, those not seen for longest, and visits each.
    pub(super) fn forget(&mut self, too_many: usize, mut visit: impl FnMut(&Seen)) {
        let mut times: Vec<_> = self.blocks.iter().map(|seen| seen.last_ns).collect();
        let Some(last) = too_many.min(times.len()).checked_sub(1) else { return };
        let (_, oldest, _) = times.select_nth_unstable(last);
        let oldest = *oldest;
        drop(times);
        let mut left = last + 1;
        self.blocks.retain(|seen| {
            // Of several seen at one time, only as many as necessary are removed.
            let goes = left > 0 && seen.last_ns <= oldest;
            if goes {
                left -= 1;
                visit(seen);
            }
            !goes
        });
        self.replace();
    }

    /// Rebuilds the positions, and frees unused memory.
    fn replace(&mut self) {
        let Self { blocks, places } = self;
        if blocks.capacity() / 2 > blocks.len() {
            blocks.shrink_to(blocks.len() + blocks.len() / ROOM);
            *places = HashTable::with_capacity(blocks.len());
        } else {
            places.clear();
        }
        for (place, seen) in (0_u32..).zip(blocks.iter()) {
            places.insert_unique(hash(seen.number), place, |place| hash_at(blocks, *place));
        }
    }
}

fn is(blocks: &[Seen], number: u64) -> impl Fn(&u32) -> bool {
    move |place| blocks.get(*place as usize).is_some_and(|seen| seen.number == number)
}

fn hash_at(blocks: &[Seen], place: u32) -> u64 {
    blocks.get(place as usize).map_or(0, |seen| hash(seen.number))
}

/// Hash that spreads neighbours: the table uses the low bits for the place, and the highest seven
/// to distinguish its entries.
const fn hash(number: u64) -> u64 {
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    spread ^ (spread >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(numbers: impl IntoIterator<Item = u64>) -> Table {
        let mut table = Table::default();
        for number in numbers {
            let (seen, is_new) = table.entry(number, usize::MAX).unwrap();
            assert!(is_new);
            seen.last_ns = number;
        }
        table
    }

    #[test]
    fn block_is_found_by_its_number() {
        let mut table = table((0..1000).map(|number| number * 7));
        for number in 0..1000 {
            assert_eq!(table.get(number * 7).unwrap().last_ns, number * 7);
            assert!(!table.entry(number * 7, usize::MAX).unwrap().1);
        }
        assert_eq!(table.len(), 1000);
        assert!(table.get(1).is_none());
    }

    #[test]
    fn oldest_blocks_are_forgotten_and_the_others_are_still_found() {
        let mut table = table((0..1000).rev());
        let mut forgotten = Vec::new();
        table.forget(300, |seen| forgotten.push(seen.number));
        forgotten.sort_unstable();
        assert_eq!(forgotten, (0..300).collect::<Vec<_>>());
        assert!((0..300).all(|number| table.get(number).is_none()));
        assert!((300..1000).all(|number| table.get(number).unwrap().last_ns == number));
    }

    #[test]
    fn blocks_of_equal_age_are_forgotten_only_as_many_as_requested() {
        let mut table = table(0..9);
        for seen in table.iter_mut() {
            seen.last_ns = 5;
        }
        table.forget(2, |_| {});
        assert_eq!(table.len(), 7);
        table.forget(100, |_| {});
        table.forget(1, |_| {});
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn table_shrinks_after_most_blocks_are_forgotten() {
        let mut table = table(0..10_000);
        table.forget(9_000, |_| {});
        assert!(table.blocks.capacity() < 2000 && table.places.capacity() < 4000);
        assert_eq!(table.len(), 1000);
    }
}
