//! Types of the driver, if the kernel exposes them: `/sys/kernel/btf/nvidia_uvm`.
//!
//! If they do, the table of families must agree with them, and they complete it: a debug build of the
//! driver has larger locks, which shift the fields after them.

mod derived;

use abi::Layout;
pub use derived::{Unfit, derived_family};
use thiserror::Error;

use crate::{
    btf::Btf,
    families::{Family, Value},
};

/// Names of the driver's types.
const EVENT: &str = "uvm_perf_event_data_t";
const EVENTS: &str = "uvm_perf_va_space_events_t";
const ENTRY: &str = "uvm_fault_buffer_entry_t";
const BLOCK: &str = "uvm_va_block_t";
const GPU: &str = "uvm_gpu_t";
/// Names of a block's pointer to its range: renamed in 565.
const BLOCK_RANGES: [&str; 2] = ["va_range", "managed_range"];

/// Contradiction between the table and the driver's types.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Disagreement {
    /// Place of a field.
    #[error(
        "{field} is at bit {types} by the driver's types in /sys/kernel/btf/nvidia_uvm, and at bit {table} by the table of layouts"
    )]
    Field {
        /// Type and field.
        field: String,
        /// Offset in bits by the types.
        types: u32,
        /// By the table.
        table: u32,
    },
    /// Value of an enumerator.
    #[error(
        "{name} is {types} by the driver's types in /sys/kernel/btf/nvidia_uvm, and {table} by the table of layouts"
    )]
    Value {
        /// Name of the enumerator.
        name: String,
        /// Value by the types.
        types: u32,
        /// By the table.
        table: u32,
    },
}

impl Disagreement {
    fn field(field: &str, types: u32, table: u32) -> Self {
        Self::Field { field: field.to_owned(), types, table }
    }

    fn value(name: &str, types: u32, table: u32) -> Self {
        Self::Value { name: name.to_owned(), types, table }
    }
}

/// Checks the layout of a family against the driver's types and completes it by them. Fields that the
/// types lack are unchanged.
///
/// # Errors
/// First field with another offset, or enumerator with another value.
pub fn completed(family: &Family, layout: &Layout, types: &Btf<'_>) -> Result<Layout, Disagreement> {
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
        (GPU, "id", bytes(layout.gpu_id)),
    ] {
        agree(format!("{name}.{path}"), types.bit_of(name, path), table)?;
    }
    for (name, table) in [(EVENT, layout.event_size), (ENTRY, layout.entry_size)] {
        agree(format!("the end of {name}"), types.size_of_type(name).map(bytes), bytes(table))?;
    }
    let interpreted = family.values().iter().map(|Value { name, value }| (name.as_str(), *value));
    let events = [("UVM_PERF_EVENT_FAULT", layout.event_fault), ("UVM_PERF_EVENT_MIGRATION", layout.event_migration)];
    for (name, table) in interpreted.chain(events) {
        match types.enumerator(name) {
            Some(value) if value != table => return Err(Disagreement::value(name, value, table)),
            _ => {}
        }
    }
    let byte_of = |name, path| types.bit_of(name, path).map(|bit| bit / 8);
    Ok(Layout {
        events_va_space: byte_of(EVENTS, "va_space").unwrap_or(layout.events_va_space),
        block_range: BLOCK_RANGES.iter().find_map(|range| byte_of(BLOCK, range)).unwrap_or(layout.block_range),
        block_start: byte_of(BLOCK, "start").unwrap_or(layout.block_start),
        block_gpus: byte_of(BLOCK, "gpus").unwrap_or(layout.block_gpus),
        block_resident: byte_of(BLOCK, "resident").unwrap_or(layout.block_resident),
        ..*layout
    })
}

fn agree(field: String, types: Option<u32>, table: u32) -> Result<(), Disagreement> {
    match types {
        Some(types) if types != table => Err(Disagreement::Field { field, types, table }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        fake::{driver_with, small_driver, small_kernel},
        families::{Families, KernelNumbers},
    };

    fn agreed_with(driver: &[u8]) -> Result<Layout, Disagreement> {
        let kernel = small_kernel();
        let kernel = Btf::parse(&kernel).unwrap();
        let types = Btf::parse_module(&kernel, driver).unwrap();
        let numbers = KernelNumbers::from_btf(&kernel, 4096).unwrap();
        let families = Families::known().unwrap();
        let family = families.of("550.163.01").unwrap();
        completed(family, &family.layout(&numbers), &types)
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
        let families = Families::known().unwrap();
        let known = families.iter().last().unwrap();
        let layout = known.layout(&KernelNumbers::from_btf(&kernel, 4096).unwrap());
        let file = driver_with(known, &layout, |_| {});
        let look = |file: &[u8]| {
            if let Ok(types) = Btf::parse_module(&kernel, file) {
                let _ = completed(known, &Layout::default(), &types);
                let _ = derived_family(&families, &types);
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
