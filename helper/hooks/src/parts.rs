//! Parts of a command's range, each within one block of managed memory.
//!
//! uvmd names whole pages, the unit that the driver moves. The program's blocks may begin and end
//! within pages: gaps between them are skipped if each page has some managed memory. Pages without
//! any are skipped too, or the command is refused, by [`Gaps`].

use crate::blocks::Block;

const PAGE_BYTES: u64 = 4096;

/// Range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// First address.
    pub(crate) begin: u64,
    /// End address, exclusive.
    pub(crate) end: u64,
}

const fn page_begin(address: u64) -> u64 {
    address & !(PAGE_BYTES - 1)
}

const fn page_end(address: u64) -> u64 {
    page_begin(address.saturating_add(PAGE_BYTES - 1))
}

impl Range {
    /// Range of this size.
    pub(crate) const fn new(begin: u64, bytes: u64) -> Self {
        Self { begin, end: begin.saturating_add(bytes) }
    }

    /// Size in bytes.
    pub(crate) const fn bytes(self) -> u64 {
        self.end.saturating_sub(self.begin)
    }

    /// The range extended to whole pages.
    pub(crate) const fn pages(self) -> Self {
        Self { begin: page_begin(self.begin), end: page_end(self.end) }
    }

    /// Whether the range is empty.
    pub(crate) const fn is_empty(self) -> bool {
        self.begin >= self.end
    }

    /// Whether a page has bytes of both ranges.
    pub(crate) const fn shares_a_page(self, other: Self) -> bool {
        page_begin(self.begin) < page_end(other.end) && page_begin(other.begin) < page_end(self.end)
    }
}

/// Error: a page of the range has no managed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotManaged;

/// Treatment of pages without managed memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gaps {
    /// A page without managed memory is an error.
    Refused,
    /// Pages without managed memory are skipped.
    Skipped,
}

/// Iterator over the parts of a range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    rest: Range,
    /// Largest part, a power of two.
    bytes_max: u64,
    gaps: Gaps,
    has_begun: bool,
}

impl Parts {
    /// Parts of a range, of at most `bytes_max` each.
    pub(crate) const fn new(range: Range, bytes_max: u64, gaps: Gaps) -> Self {
        Self { rest: range, bytes_max, gaps, has_begun: false }
    }

    /// Whether the range is used up. False, too, if only a gap is left, which the next call skips.
    pub(crate) const fn is_exhausted(&self) -> bool {
        self.rest.is_empty()
    }

    /// Continues at an address.
    pub(crate) const fn skip_to(&mut self, address: u64) {
        self.rest.begin = address;
    }

    /// Next part; `None` after the last. `find` returns the first managed block that ends after an
    /// address.
    ///
    /// # Errors
    /// Fails if a page without managed memory is not permitted, or if `find` fails.
    pub(crate) fn next<E: From<NotManaged>>(
        &mut self,
        find: impl FnOnce(u64) -> Result<Option<Block>, E>,
    ) -> Result<Option<Range>, E> {
        let Range { begin: at, end } = self.rest;
        if self.is_exhausted() {
            return Ok(None);
        }
        let skips = self.gaps == Gaps::Skipped;
        match find(at)?.filter(|block| block.begin < end) {
            Some(block) if skips || page_begin(block.begin) <= page_end(at) => {
                let begin = at.max(block.begin);
                let full = (begin & !(self.bytes_max - 1)).saturating_add(self.bytes_max);
                self.rest.begin = end.min(block.end).min(full);
                self.has_begun = true;
                Ok(Some(Range { begin, end: self.rest.begin }))
            }
            // The rest is on the last part's page.
            None if skips || self.has_begun && page_end(at) >= end => {
                self.rest.begin = end;
                Ok(None)
            }
            _ => Err(NotManaged.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCKS: [(u64, u64); 4] =
        [(0x10_0000, 0x10_0000), (0x20_0000, 0x1100), (0x20_1180, 0x80), (0x30_0000, 0x1000)];

    fn parts(begin: u64, end: u64) -> Result<Vec<(u64, u64)>, NotManaged> {
        parts_with(Gaps::Refused, begin, end)
    }

    fn parts_with(gaps: Gaps, begin: u64, end: u64) -> Result<Vec<(u64, u64)>, NotManaged> {
        let find = |address: u64| {
            let blocks = BLOCKS.into_iter().map(|(begin, bytes)| Block::new(begin, bytes, 1, true));
            Ok(blocks.into_iter().find(|block| block.end > address))
        };
        let mut parts = Parts::new(Range { begin, end }, 0x8_0000, gaps);
        core::iter::from_fn(|| parts.next(find).transpose())
            .map(|part| part.map(|part| (part.begin, part.end)))
            .collect()
    }

    #[test]
    fn parts_stay_within_a_block_and_the_size_limit() {
        assert_eq!(parts(0x10_1000, 0x10_3000), Ok(vec![(0x10_1000, 0x10_3000)]));
        let all = vec![(0x10_1000, 0x18_0000), (0x18_0000, 0x20_0000), (0x20_0000, 0x20_1000)];
        assert_eq!(parts(0x10_1000, 0x20_1000), Ok(all));
    }

    #[test]
    fn whole_pages_yield_parts_within_blocks() {
        assert_eq!(parts(0x20_0000, 0x20_2000), Ok(vec![(0x20_0000, 0x20_1100), (0x20_1180, 0x20_1200)]));
        assert_eq!(parts(0x20_1000, 0x20_2000), Ok(vec![(0x20_1000, 0x20_1100), (0x20_1180, 0x20_1200)]));
        assert_eq!(parts(0x20_1200, 0x20_2000), Err(NotManaged));
    }

    #[test]
    fn page_without_managed_memory_is_refused() {
        for (begin, end) in [
            (0x20_0000, 0x20_3000),
            (0, 0x10_0001),
            (0xf_f000, 0x10_1000),
            (0x20_1000, 0x30_1000),
            (0x31_0000, 0x31_1000),
        ] {
            assert_eq!(parts(begin, end), Err(NotManaged), "{begin:#x}");
        }
        assert_eq!(parts(u64::MAX - 1, u64::MAX), Err(NotManaged));
    }

    #[test]
    fn pages_without_managed_memory_are_skipped_where_permitted() {
        let skipping = |begin, end| parts_with(Gaps::Skipped, begin, end).unwrap();
        let all = [(0x18_0000, 0x20_0000), (0x20_0000, 0x20_1100), (0x20_1180, 0x20_1200), (0x30_0000, 0x30_1000)];
        assert_eq!(skipping(0x18_0000, 0x40_0000), all);
        assert_eq!(skipping(0, 0x10_1000), [(0x10_0000, 0x10_1000)]);
        assert!(skipping(0x20_2000, 0x30_0000).is_empty() && skipping(0x31_0000, u64::MAX).is_empty());
    }

    #[test]
    fn ranges_share_a_page_if_they_touch_the_same_one() {
        let range = |begin, end| Range { begin, end };
        assert!(range(0x1000, 0x1001).shares_a_page(range(0x1ff0, 0x3000)));
        assert!(!range(0x1000, 0x2000).shares_a_page(range(0x2000, 0x3000)));
    }
}
