//! `sys::uvm::records`: records of the driver's tools interface.
//!
//! Input: records of 64 bytes. Any bytes are a record, of the kind of their first byte, and no
//! field is out of its range.

use sys::uvm::records::{EventKind, MigrationCause, RECORD_BYTES, Record};

pub(super) fn run(input: &[u8]) {
    for bytes in input.as_chunks::<RECORD_BYTES>().0 {
        let record = Record::from_bytes(bytes);
        assert_eq!(record.kind(), EventKind::from_number(bytes[0]));
        match record {
            Record::Migration(migration) if migration.source.is_cpu() && migration.destination.is_cpu() => {
                assert_eq!(migration.cause, MigrationCause::Unknown);
            }
            Record::Thrashing(region) => {
                let gpu = region.first_gpu();
                assert!(gpu.is_cpu() || region.processors >> gpu.0 & 1 == 1, "{region:?}");
            }
            Record::ReadDuplicateInvalidate(region) => assert!(region.processors.count_ones() <= 1),
            Record::Unknown { number } => assert_eq!(number, bytes[0]),
            _ => {}
        }
    }
}
