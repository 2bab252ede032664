//! Ranges of whole pages, as arguments of the driver's calls.

/// Maximum bytes of one call: it holds the target's locks, which blocks the target's faults and
/// mmap, until everything is copied or mapped.
pub const CALL_MAX_BYTES: u64 = 32 << 20;

/// Range of whole pages, small enough for one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRange {
    base: u64,
    length: u64,
}

impl PageRange {
    /// Creates a range of whole pages; `None` if it is empty, not on page boundaries, larger than
    /// [`CALL_MAX_BYTES`], or ends beyond the last address.
    #[must_use]
    pub fn new(base: u64, length: u64) -> Option<Self> {
        let page = procfs::page_size();
        let is_whole = base.is_multiple_of(page) && length.is_multiple_of(page);
        let is_sized = (1..=CALL_MAX_BYTES).contains(&length);
        (is_whole && is_sized && base.checked_add(length).is_some()).then_some(Self { base, length })
    }

    /// Splits a larger range into parts of at most `part_bytes`, the first up to a multiple of
    /// that; none if no part would be a range.
    #[must_use]
    pub fn parts(base: u64, length: u64, part_bytes: u64) -> Option<Vec<Self>> {
        let end = base.checked_add(length)?;
        let mut parts = Vec::new();
        let mut at = base;
        while at < end {
            let next =
                at.checked_next_multiple_of(part_bytes).filter(|next| *next > at).or(at.checked_add(part_bytes))?;
            let next = next.min(end);
            parts.push(Self::new(at, next - at)?);
            at = next;
        }
        (!parts.is_empty()).then_some(parts)
    }

    /// First address.
    #[must_use]
    pub const fn begin(self) -> u64 {
        self.base
    }

    /// Length in bytes.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn page_range_is_page_aligned_and_bounded() {
        assert!(PageRange::new(0x200_0000_0000, 2 * MIB).is_some());
        for (base, length) in [
            (0, 0),
            (1, 4096),
            (4096, 100),
            (0, CALL_MAX_BYTES + 4096),
            (u64::MAX - 4095, 4096),
            (u64::MAX - 4095, 8192),
        ] {
            assert_eq!(PageRange::new(base, length), None, "{base:#x} {length:#x}");
        }
    }

    #[test]
    fn parts_cover_a_range_and_end_at_block_boundaries() {
        let parts = PageRange::parts(3 * MIB, 4 * MIB, 2 * MIB).unwrap();
        let spans: Vec<(u64, u64)> = parts.iter().map(|part| (part.base / MIB, part.length / MIB)).collect();
        assert_eq!(spans, [(3, 1), (4, 2), (6, 1)]);
        assert_eq!(PageRange::parts(2 * MIB, 2 * MIB, 2 * MIB).unwrap().len(), 1);
        for (base, length, part) in [(0, 0, MIB), (1, MIB, MIB), (0, MIB, 0), (0, MIB, 100), (u64::MAX, 2, MIB)] {
            assert_eq!(PageRange::parts(base, length, part), None, "{base:#x} {length:#x} {part}");
        }
    }
}
