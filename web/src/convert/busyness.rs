//! Order of processes and owners by their counts.

use model::{Counters, Direction};

/// Pages faulted on or copied. Faults alone would miss processes that only prefetch, bytes alone
/// those that only touch new memory.
pub(crate) fn busyness<'a>(counters: impl IntoIterator<Item = &'a Counters>) -> u64 {
    const PAGE_BYTES: u64 = 4096;
    let (mut faults, mut bytes): (u64, u64) = (0, 0);
    for each in counters {
        faults = faults.saturating_add(each.fault_entries.total()).saturating_add(each.cpu_faults());
        for direction in Direction::ALL {
            bytes = bytes.saturating_add(each.bytes(direction).total());
        }
    }
    faults.saturating_add(bytes / PAGE_BYTES)
}
