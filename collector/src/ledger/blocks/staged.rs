//! Copies between two GPUs by way of the host, which the driver makes where they cannot copy to each
//! other: first all of them to the host, then on to the GPU that faulted.

use std::collections::BTreeMap;

use abi::{BlockRecord, RecordKind};
use model::Cause;

use super::super::cause;

/// Maximum of blocks in transit. The driver completes one per GPU at a time; the others lack their
/// second record. At the maximum, all are dropped.
const BLOCKS_MAX: usize = 256;

/// Bytes on the way, by block.
#[derive(Debug, Default)]
pub(super) struct Staged(BTreeMap<u64, u64>);

impl Staged {
    /// Adds a record of the block of this number. Returns the bytes of a copy from the host that another
    /// GPU sent that way because of a fault.
    pub(super) fn add(&mut self, number: u64, kind: RecordKind, record: &BlockRecord) -> u64 {
        let bytes = u64::from(record.bytes);
        let is_by_fault = matches!(cause(record.cause), Cause::Fault | Cause::TreePrefetch);
        match kind {
            RecordKind::CopyStaged if is_by_fault => {
                if self.0.len() >= BLOCKS_MAX {
                    self.0.clear();
                }
                let sum = self.0.entry(number).or_default();
                *sum = sum.saturating_add(bytes);
            }
            RecordKind::CopyHtod if is_by_fault => {
                let Some(left) = self.0.get_mut(&number) else { return 0 };
                let arrived = bytes.min(*left);
                *left -= arrived;
                if *left == 0 {
                    self.0.remove(&number);
                }
                return arrived;
            }
            // The driver locks the block until the bytes have arrived: that record is missing.
            RecordKind::CopyHtod
            | RecordKind::CopyDtoh
            | RecordKind::Evicted
            | RecordKind::CpuFault
            | RecordKind::Gone => _ = self.0.remove(&number),
            _ => {}
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUESTED: u16 = 6;

    fn record(cause: u16, bytes: u32) -> BlockRecord {
        BlockRecord { cause, bytes, ..BlockRecord::default() }
    }

    #[test]
    fn staged_bytes_arrive_once() {
        let mut staged = Staged::default();
        staged.add(1, RecordKind::CopyStaged, &record(0, 8192));
        staged.add(1, RecordKind::CopyStaged, &record(3, 4096));
        assert_eq!(staged.add(2, RecordKind::CopyHtod, &record(0, 4096)), 0);
        assert_eq!(staged.add(1, RecordKind::CopyHtod, &record(0, 8192)), 8192);
        assert_eq!(staged.add(1, RecordKind::CopyHtod, &record(3, 65536)), 4096);
        assert_eq!(staged.add(1, RecordKind::CopyHtod, &record(0, 4096)), 0);
        assert!(staged.0.is_empty());
    }

    #[test]
    fn requested_copies_are_not_by_fault_and_a_cpu_fault_ends_the_way() {
        let mut staged = Staged::default();
        staged.add(1, RecordKind::CopyStaged, &record(REQUESTED, 4096));
        assert_eq!(staged.add(1, RecordKind::CopyHtod, &record(REQUESTED, 4096)), 0);
        staged.add(1, RecordKind::CopyStaged, &record(0, 4096));
        staged.add(1, RecordKind::CpuFault, &record(0, 0));
        assert_eq!(staged.add(1, RecordKind::CopyHtod, &record(0, 4096)), 0);
    }

    #[test]
    fn way_whose_arrival_has_no_record_ends_when_the_block_moves_otherwise() {
        let later = [
            (RecordKind::Evicted, 4),
            (RecordKind::CopyDtoh, 4),
            (RecordKind::CopyDtoh, 0),
            (RecordKind::CopyHtod, REQUESTED),
        ];
        for (kind, cause) in later {
            let mut staged = Staged::default();
            staged.add(1, RecordKind::CopyStaged, &record(0, 8192));
            assert_eq!(staged.add(1, kind, &record(cause, 4096)), 0, "{kind:?}");
            assert_eq!(staged.add(1, RecordKind::CopyHtod, &record(0, 8192)), 0, "{kind:?}");
        }
    }

    #[test]
    fn blocks_on_the_way_are_limited() {
        let mut staged = Staged::default();
        for number in 0..10_000 {
            staged.add(number, RecordKind::CopyStaged, &record(0, 4096));
        }
        assert!(staged.0.len() <= BLOCKS_MAX);
    }
}
