//! Types of the driver, if the kernel exposes them: `/sys/kernel/btf/nvidia_uvm`.
//!
//! Few kernels do. If they do, the table of families must agree with them, and they complete it: a
//! debug build of the driver has larger locks, which shift the fields after them.

use abi::Layout;
use thiserror::Error;

use crate::btf::Btf;

/// Contradiction between the table and the driver's types.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "{field} is at bit {types} by the driver's types in /sys/kernel/btf/nvidia_uvm, and at bit {table} by the table of layouts"
)]
pub struct Disagreement {
    field: String,
    types: u32,
    table: u32,
}

/// Checks a layout against the driver's types and completes it by them. Fields that the types lack
/// are unchanged.
///
/// # Errors
/// First field with another offset.
pub fn completed(layout: &Layout, types: &Btf<'_>) -> Result<Layout, Disagreement> {
    const EVENT: &str = "uvm_perf_event_data_t";
    const ENTRY: &str = "uvm_fault_buffer_entry_t";
    const BLOCK: &str = "uvm_va_block_t";
    let bytes = |offset: u32| offset.saturating_mul(8);
    for (name, path, table) in [
        (EVENT, "fault.proc_id", bytes(layout.fault_processor)),
        (EVENT, "fault.gpu.buffer_entry", bytes(layout.fault_entry)),
        (EVENT, "fault.gpu.batch_id", bytes(layout.fault_batch)),
        (EVENT, "fault.gpu.is_duplicate", bytes(layout.fault_is_duplicate)),
        (EVENT, "fault.cpu.is_write", bytes(layout.fault_is_write)),
        (EVENT, "fault.cpu.fault_va", bytes(layout.fault_cpu_address)),
        (EVENT, "fault.cpu.pc", bytes(layout.fault_cpu_pc)),
        (EVENT, "migration.dst", bytes(layout.migration_dst)),
        (EVENT, "migration.src", bytes(layout.migration_src)),
        (EVENT, "migration.address", bytes(layout.migration_address)),
        (EVENT, "migration.bytes", bytes(layout.migration_bytes)),
        (EVENT, "migration.cause", bytes(layout.migration_cause)),
        (ENTRY, "fault_address", bytes(layout.entry_address)),
        (ENTRY, "fault_access_type", bytes(layout.entry_access) + layout.entry_access_shift),
        (ENTRY, "va_space", bytes(layout.entry_va_space)),
        (ENTRY, "is_replayable", bytes(layout.entry_replayable) + layout.entry_replayable_bit),
        (ENTRY, "access_type_mask", bytes(layout.entry_access_mask)),
        (ENTRY, "num_instances", bytes(layout.entry_instances)),
        ("uvm_gpu_t", "id", bytes(layout.gpu_id)),
    ] {
        agree(format!("{name}.{path}"), types.bit_of(name, path), table)?;
    }
    for (name, table) in [(EVENT, layout.event_size), (ENTRY, layout.entry_size)] {
        agree(format!("the end of {name}"), types.size_of_type(name).map(bytes), bytes(table))?;
    }
    let byte_of = |name, path| types.bit_of(name, path).map(|bit| bit / 8);
    Ok(Layout {
        events_va_space: byte_of("uvm_perf_va_space_events_t", "va_space").unwrap_or(layout.events_va_space),
        // Renamed in 565.
        block_range: byte_of(BLOCK, "va_range").or(byte_of(BLOCK, "managed_range")).unwrap_or(layout.block_range),
        block_start: byte_of(BLOCK, "start").unwrap_or(layout.block_start),
        block_gpus: byte_of(BLOCK, "gpus").unwrap_or(layout.block_gpus),
        block_resident: byte_of(BLOCK, "resident").unwrap_or(layout.block_resident),
        ..*layout
    })
}

fn agree(field: String, types: Option<u32>, table: u32) -> Result<(), Disagreement> {
    match types {
        Some(types) if types != table => Err(Disagreement { field, types, table }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fake::{small_driver, small_kernel},
        families::{Families, KernelNumbers},
    };

    fn agreed_with(driver: &[u8]) -> Result<Layout, Disagreement> {
        let kernel = small_kernel();
        let kernel = Btf::parse(&kernel).unwrap();
        let types = Btf::parse_module(&kernel, driver).unwrap();
        let numbers = KernelNumbers::from_btf(&kernel, 4096).unwrap();
        completed(&Families::known().unwrap().of("550.163.01").unwrap().layout(&numbers), &types)
    }

    #[test]
    fn layout_is_completed_by_the_drivers_types() {
        let layout = agreed_with(&small_driver(136, 24)).unwrap();
        // As in the table, except for a lock that is 24 bytes larger, as in a debug build.
        assert_eq!((layout.events_va_space, layout.block_range, layout.block_start), (184 + 24, 40 + 24, 48 + 24));
        assert_eq!((layout.block_resident, layout.block_gpus), (64 + 24, 472 + 24));
        assert_eq!(agreed_with(&small_driver(136, 0)).unwrap().events_va_space, 184);
    }

    #[test]
    fn contradicting_layout_is_rejected_with_field_and_both_values() {
        assert_eq!(
            agreed_with(&small_driver(128, 0)).unwrap_err().to_string(),
            "uvm_gpu_t.id is at bit 1024 by the driver's types in /sys/kernel/btf/nvidia_uvm, and at bit 1088 by the table of layouts"
        );
    }

    #[test]
    fn truncated_or_corrupt_driver_btf_does_not_panic() {
        let kernel = small_kernel();
        let kernel = Btf::parse(&kernel).unwrap();
        let file = small_driver(136, 0);
        let look = |file: &[u8]| {
            if let Ok(types) = Btf::parse_module(&kernel, file) {
                let _ = completed(&Layout::default(), &types);
            }
        };
        for at in 0..file.len() {
            look(&file[..at]);
            for value in [0, 1, 0x7f, 0xff] {
                let mut broken = file.clone();
                broken[at] = value;
                look(&broken);
            }
        }
    }
}
