//! Family of a driver whose version is in no family, from its own types.

use abi::{
    Layout,
    layout::{EVENT_DATA_MAX, FAULT_ENTRY_MAX},
};
use thiserror::Error;

use super::{BLOCK, BLOCK_RANGES, Disagreement, ENTRY, EVENT, EVENTS, GPU};
use crate::{
    btf::Btf,
    families::{Families, Family, Value},
};

/// Reason why a driver's types cannot replace the table of layouts.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Unfit {
    /// A field, a type or an enumerator is missing.
    #[error("no {0} in them")]
    Lacking(String),
    /// A type is larger than the probes can read.
    #[error("{name} has {bytes} bytes; the probes read at most {bytes_max}")]
    TooLarge {
        /// Name of the type.
        name: &'static str,
        /// Its size.
        bytes: u32,
        /// Size of the probes' buffer.
        bytes_max: usize,
    },
    /// A value means something else than in the newest known family.
    #[error(transparent)]
    Disagreement(#[from] Disagreement),
}

/// Derives the family of an unknown version from the driver's types: every offset that the probes read
/// is there, and every value that they interpret means the same as in the newest known family.
///
/// # Errors
/// First fact that is missing or different.
pub fn derived_family(families: &Families, types: &Btf<'_>) -> Result<Family, Unfit> {
    const MASK: &str = "uvm_processor_mask_t";
    let newest = families.iter().last().ok_or_else(|| Unfit::Lacking("family to compare them with".to_owned()))?;
    for Value { name, value } in newest.values() {
        let of_types = enumerator(types, name)?;
        if of_types != *value {
            return Err(Disagreement::value(name, of_types, *value).into());
        }
    }
    // A mask has a bit for each processor id: its size tells how many there are.
    let mask_bytes_known = (newest.gpu_max() + 1).div_ceil(u64::BITS) * 8;
    let mask_bytes = size(types, MASK)?;
    if mask_bytes != mask_bytes_known {
        return Err(Disagreement::field(
            &format!("the end of {MASK}"),
            mask_bytes.saturating_mul(8),
            mask_bytes_known * 8,
        )
        .into());
    }
    for (name, field) in [(EVENTS, "va_space"), (BLOCK, "start"), (BLOCK, "resident")] {
        bit(types, name, field)?;
    }
    if BLOCK_RANGES.iter().all(|range| types.bit_of(BLOCK, range).is_none()) {
        return Err(Unfit::Lacking(format!("{BLOCK}.{}", BLOCK_RANGES.join(" or "))));
    }
    Ok(newest.with_types(layout(types)?, enumerator(types, "UVM_PERF_EVENT_COUNT")?))
}

fn layout(types: &Btf<'_>) -> Result<Layout, Unfit> {
    const ACCESS: &str = "fault_access_type";
    let event = |path| byte(types, EVENT, path);
    let entry = |path| byte(types, ENTRY, path);
    let access_bit = bit(types, ENTRY, ACCESS)?;
    let access_bits =
        types.width_of(ENTRY, ACCESS).ok_or_else(|| Unfit::Lacking(format!("width of {ENTRY}.{ACCESS}")))?;
    let replayable_bit = bit(types, ENTRY, "is_replayable")?;
    Ok(Layout {
        event_fault: enumerator(types, "UVM_PERF_EVENT_FAULT")?,
        event_migration: enumerator(types, "UVM_PERF_EVENT_MIGRATION")?,
        event_size: within(types, EVENT, EVENT_DATA_MAX)?,
        fault_processor: event("fault.proc_id")?,
        fault_entry: event("fault.gpu.buffer_entry")?,
        fault_is_duplicate: event("fault.gpu.is_duplicate")?,
        fault_batch: event("fault.gpu.batch_id")?,
        fault_cpu_address: event("fault.cpu.fault_va")?,
        fault_cpu_pc: event("fault.cpu.pc")?,
        fault_is_write: event("fault.cpu.is_write")?,
        migration_dst: event("migration.dst")?,
        migration_src: event("migration.src")?,
        migration_address: event("migration.address")?,
        migration_bytes: event("migration.bytes")?,
        migration_cause: event("migration.cause")?,
        entry_size: within(types, ENTRY, FAULT_ENTRY_MAX)?,
        entry_address: entry("fault_address")?,
        entry_access: access_bit / 32 * 4,
        entry_access_shift: access_bit % 32,
        entry_access_bits: access_bits,
        entry_va_space: entry("va_space")?,
        entry_access_mask: entry("access_type_mask")?,
        entry_instances: entry("num_instances")?,
        entry_replayable: replayable_bit / 8,
        entry_replayable_bit: replayable_bit % 8,
        gpu_id: byte(types, GPU, "id")?,
        ..Layout::default()
    })
}

fn enumerator(types: &Btf<'_>, name: &str) -> Result<u32, Unfit> {
    types.enumerator(name).ok_or_else(|| Unfit::Lacking(name.to_owned()))
}

fn size(types: &Btf<'_>, name: &'static str) -> Result<u32, Unfit> {
    types.size_of_type(name).ok_or_else(|| Unfit::Lacking(name.to_owned()))
}

fn bit(types: &Btf<'_>, name: &str, path: &str) -> Result<u32, Unfit> {
    types.bit_of(name, path).ok_or_else(|| Unfit::Lacking(format!("{name}.{path}")))
}

fn byte(types: &Btf<'_>, name: &str, path: &str) -> Result<u32, Unfit> {
    bit(types, name, path).map(|bit| bit / 8)
}

fn within(types: &Btf<'_>, name: &'static str, bytes_max: usize) -> Result<u32, Unfit> {
    let bytes = size(types, name)?;
    let fits = usize::try_from(bytes).is_ok_and(|bytes| bytes <= bytes_max);
    if fits { Ok(bytes) } else { Err(Unfit::TooLarge { name, bytes, bytes_max }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        driver_types::completed,
        fake::{driver_with, small_kernel},
        families::KernelNumbers,
    };

    /// Layout of a driver of an unknown version whose types are those of a known one, with changes of
    /// its layout and its enumerators.
    fn layout_with(
        version: &str,
        change: impl FnOnce(&mut Layout),
        values: impl FnOnce(&mut Vec<(String, u32)>),
    ) -> Result<(Layout, Layout), Unfit> {
        let file = small_kernel();
        let kernel = Btf::parse(&file).unwrap();
        let numbers = KernelNumbers::from_btf(&kernel, 4096).unwrap();
        let families = Families::known().unwrap();
        let known = families.of(version).unwrap();
        let mut known_layout = known.layout(&numbers);
        change(&mut known_layout);
        let file = driver_with(known, &known_layout, values);
        let types = Btf::parse_module(&kernel, &file).unwrap();
        let family = derived_family(&families, &types)?;
        assert_eq!((family.to_string().as_str(), family.first_major()), ("from types", 580));
        Ok((completed(&family, &family.layout(&numbers), &types)?, known_layout))
    }

    #[test]
    fn types_give_the_layout_that_the_table_has() {
        for version in ["550.163.01", "560.35.03", "570.211.01", "580.142"] {
            let (derived, known) = layout_with(version, |_| {}, |_| {}).unwrap();
            assert_eq!(derived, known, "{version}");
        }
    }

    #[test]
    fn fields_and_events_may_be_elsewhere() {
        let (derived, moved) = layout_with(
            "580.142",
            |layout| {
                layout.gpu_id += 64;
                layout.entry_va_space += 8;
                layout.event_fault += 1;
                layout.event_migration += 1;
            },
            |_| {},
        )
        .unwrap();
        assert_eq!(derived, moved);
    }

    #[test]
    fn cause_with_another_value_is_refused_by_name() {
        let error = layout_with(
            "580.142",
            |_| {},
            |values| {
                let of =
                    |values: &[(String, u32)], name: &str| values.iter().position(|value| value.0 == name).unwrap();
                let (eviction, prefetch) =
                    (of(values, "UVM_MAKE_RESIDENT_CAUSE_EVICTION"), of(values, "UVM_MAKE_RESIDENT_CAUSE_PREFETCH"));
                (values[eviction].1, values[prefetch].1) = (3, 4);
            },
        );
        assert_eq!(
            error.unwrap_err().to_string(),
            "UVM_MAKE_RESIDENT_CAUSE_EVICTION is 3 by the driver's types in /sys/kernel/btf/nvidia_uvm, and 4 by the table of layouts"
        );
        let added = |values: &mut Vec<(String, u32)>| {
            values.iter_mut().find(|value| value.0 == "UVM_MAKE_RESIDENT_CAUSE_MAX").unwrap().1 += 1;
        };
        let error = layout_with("580.142", |_| {}, added).unwrap_err().to_string();
        assert!(error.starts_with("UVM_MAKE_RESIDENT_CAUSE_MAX is 10 by"), "{error}");
    }

    #[test]
    fn enumerator_that_is_missing_is_named() {
        let error = layout_with("580.142", |_| {}, |values| drop(values.remove(0))).unwrap_err();
        assert_eq!(error, Unfit::Lacking("UVM_PERF_EVENT_FAULT".to_owned()));
    }

    #[test]
    fn structure_larger_than_the_probes_read_is_refused() {
        let error = layout_with("580.142", |layout| layout.entry_size = 4096, |_| {}).unwrap_err();
        let bytes_max = FAULT_ENTRY_MAX;
        assert_eq!(error, Unfit::TooLarge { name: "uvm_fault_buffer_entry_t", bytes: 4096, bytes_max });
    }

    #[test]
    fn type_that_is_missing_is_named() {
        let kernel = small_kernel();
        let kernel = Btf::parse(&kernel).unwrap();
        let file = crate::fake::small_driver(136, 0);
        let types = Btf::parse_module(&kernel, &file).unwrap();
        let error = derived_family(&Families::known().unwrap(), &types).unwrap_err();
        assert!(matches!(error, Unfit::Lacking(_)), "{error}");
    }
}
