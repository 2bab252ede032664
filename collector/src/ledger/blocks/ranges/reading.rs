//! Update of the ranges by the mappings in /proc: new, removed and displaced ones.

use std::cmp::Reverse;

use abi::block::BLOCK_BYTES;

use super::{Known, Origin, Ranges};
use crate::spans::{RANGES_MAX, Span, together};

/// Maximum of ranges that are no longer mapped.
const UNMAPPED_MAX: usize = 1024;

/// Change of the ranges of a process.
#[derive(Debug)]
pub(in super::super) struct Changes {
    /// All ranges that are mapped now.
    mapped: Vec<Span>,
    /// New ranges among them.
    new: Vec<Span>,
    /// Ranges to be removed.
    gone: Vec<Span>,
    /// Number of ranges removed for lack of room.
    forgotten: u64,
}

impl Changes {
    /// Number of blocks that may belong to other ranges than before.
    pub(in super::super) fn blocks(&self) -> u64 {
        self.spans().map(|span| span.end - span.start).sum()
    }

    /// Numbers of the blocks that may belong to other ranges than before.
    pub(in super::super) fn numbers(&self) -> Vec<u64> {
        let mut numbers: Vec<_> = self.spans().flatten().collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    fn spans(&self) -> impl Iterator<Item = std::ops::Range<u64>> {
        let changed = self.gone.iter().chain(&self.new);
        changed.map(|span| span.start / BLOCK_BYTES..span.end.div_ceil(BLOCK_BYTES))
    }
}

impl Ranges {
    /// Processes the mappings of /proc, read at `read_ns` or later, with adjacent ones possibly
    /// merged. `None` if they are unchanged.
    pub(in super::super) fn read(&mut self, mapped: &[Span], mappings: usize, read_ns: u64) -> Option<Changes> {
        self.read_ns = Some(read_ns);
        self.mappings = mappings;
        for known in self.by_address.values_mut() {
            if known.origin == Origin::Shown && known.last_ns < read_ns {
                known.origin = Origin::Unmapped;
            }
        }
        let mapped = together(mapped, self.max);
        (!self.mapped().eq(mapped.iter().cloned())).then(|| self.changes(mapped.into_owned()))
    }

    /// Sets the maximum. `None` if there are no more ranges than that.
    pub(in super::super) fn bound(&mut self, max: usize) -> Option<Changes> {
        self.max = max.clamp(1, RANGES_MAX);
        (self.by_address.len() > self.max).then(|| {
            let mapped: Vec<_> = self.mapped().collect();
            self.changes(together(&mapped, self.max).into_owned())
        })
    }

    /// Number with room for all.
    pub(in super::super) fn wanted(&self) -> usize {
        self.by_address.len().max(self.mappings).min(RANGES_MAX)
    }

    /// Mapped ranges in the last reading of /proc.
    fn mapped(&self) -> impl Iterator<Item = Span> {
        self.iter().filter(|(_, known)| known.origin == Origin::Mapped).map(|(span, _)| span)
    }

    fn changes(&self, mapped: Vec<Span>) -> Changes {
        let is_known = |span: &&Span| self.by_address.get(&span.start).is_some_and(|known| known.end == span.end);
        let new = mapped.iter().filter(|span| !is_known(span)).cloned().collect();
        let (mut gone, mut others) = (Vec::new(), Vec::new());
        for (span, known) in self.iter() {
            let next = mapped.get(mapped.partition_point(|mapping| mapping.end <= span.start));
            match next.filter(|mapping| mapping.start < span.end) {
                Some(mapping) if *mapping == span => {}
                Some(_) => gone.push(span),
                None => others.push((known.last_ns, span, known.origin != Origin::Shown)),
            }
        }
        // Those seen last are retained.
        others.sort_unstable_by_key(|(last_ns, ..)| Reverse(*last_ns));
        let (mut room, mut unmapped) = (self.max.saturating_sub(mapped.len()), 0);
        let before = gone.len();
        for (_, span, is_unmapped) in others {
            unmapped += usize::from(is_unmapped);
            if room == 0 || is_unmapped && unmapped > UNMAPPED_MAX {
                gone.push(span);
            } else {
                room -= 1;
            }
        }
        let forgotten = (gone.len() - before) as u64;
        Changes { mapped, new, gone, forgotten }
    }

    /// Applies the changes; then blocks are to be passed to [`Self::place`].
    pub(in super::super) fn apply(&mut self, changes: Changes) {
        let Changes { mapped, new, gone, forgotten } = changes;
        self.last = 0..0;
        self.forgotten = self.forgotten.saturating_add(forgotten);
        for span in gone {
            self.by_address.remove(&span.start);
        }
        for known in self.by_address.values_mut().filter(|known| known.origin == Origin::Mapped) {
            known.origin = Origin::Unmapped;
        }
        for Span { start, end } in new {
            self.by_address.insert(start, Known { is_fresh: true, ..Known::new(end, Origin::Mapped) });
        }
        for span in mapped {
            if let Some(known) = self.by_address.get_mut(&span.start) {
                known.origin = Origin::Mapped;
            }
        }
    }
}
