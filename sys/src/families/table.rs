//! Built-in table of driver layouts.

use std::{collections::BTreeMap, ops::RangeInclusive};

use abi::{
    Layout,
    layout::{EVENT_DATA_MAX, FAMILIES_JSON, FAULT_ENTRY_MAX},
};
use serde::Deserialize;
use thiserror::Error;

use super::{Families, Family, GPU_MAX_TO_545, Origin, Value};

/// Highest GPU id from 550 on, where a GPU has eight ids for its MIG instances:
/// `UVM_ID_MAX_PROCESSORS - 1`.
const GPU_MAX_FROM_550: u32 = 256;
/// Consecutive ids of each GPU.
const GPU_IDS_FROM_550: u32 = 8;

/// Error of the table. The six families are compiled in, so that only an error of this program can
/// cause it.
#[derive(Debug, Error)]
pub enum TableError {
    /// Invalid JSON, or an unexpected structure.
    #[error("the table of driver layouts cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// Missing or invalid value.
    #[error("the table of driver layouts lacks {family}/{key}, or has it wrong")]
    Value {
        /// Family.
        family: String,
        /// Key of the value.
        key: String,
    },
}

impl Families {
    /// Reads the table of [`abi::layout`].
    ///
    /// # Errors
    /// If the table has a mistake.
    pub fn known() -> Result<Self, TableError> {
        #[derive(Deserialize)]
        struct Entry {
            #[serde(default)]
            except: Vec<String>,
            values: BTreeMap<String, serde_json::Value>,
        }
        let table: BTreeMap<String, Entry> = serde_json::from_str(FAMILIES_JSON)?;
        let mut families = table
            .into_iter()
            .map(|(name, Entry { except, values })| Values { family: &name, values: &values }.family(except))
            .collect::<Result<Vec<_>, _>>()?;
        families.sort_by_key(Family::first_major);
        Ok(Self(families))
    }
}

/// Entry of a family in the table.
struct Values<'a> {
    family: &'a str,
    values: &'a BTreeMap<String, serde_json::Value>,
}

impl Values<'_> {
    fn family(&self, except: Vec<String>) -> Result<Family, TableError> {
        let majors = self.majors().ok_or_else(|| self.wrong("its name"))?;
        // "357:4": the field begins at bit 357 of the structure and has 4 bits.
        let access_bits = "fbe.fault_access_type(bit:n)";
        let (access_bit, access_width) = self
            .values
            .get(access_bits)
            .and_then(serde_json::Value::as_str)
            .and_then(|text| text.split_once(':'))
            .and_then(|(bit, width)| Some((bit.parse::<u32>().ok()?, width.parse::<u32>().ok()?)))
            .ok_or_else(|| self.wrong(access_bits))?;
        let replayable_bit = self.number("fbe.is_replayable(bit)")?;
        let layout = Layout {
            event_fault: self.number("enum.UVM_PERF_EVENT_FAULT")?,
            event_migration: self.number("enum.UVM_PERF_EVENT_MIGRATION")?,
            event_size: self.within("evd.size", EVENT_DATA_MAX)?,
            fault_processor: self.number("fault.proc_id")?,
            fault_entry: self.number("fault.gpu.buffer_entry")?,
            fault_is_duplicate: self.number("fault.gpu.is_duplicate")?,
            fault_batch: self.number("fault.gpu.batch_id")?,
            fault_cpu_address: self.number("fault.cpu.fault_va")?,
            fault_cpu_pc: self.number("fault.cpu.pc")?,
            fault_is_write: self.number("fault.cpu.is_write")?,
            migration_dst: self.number("mig.dst")?,
            migration_src: self.number("mig.src")?,
            migration_address: self.number("mig.address")?,
            migration_bytes: self.number("mig.bytes")?,
            migration_cause: self.number("mig.cause")?,
            entry_size: self.within("fbe.size", FAULT_ENTRY_MAX)?,
            entry_address: self.number("fbe.fault_address")?,
            entry_access: access_bit / 32 * 4,
            entry_access_shift: access_bit % 32,
            entry_access_bits: access_width,
            entry_va_space: self.number("fbe.va_space")?,
            entry_access_mask: self.number("fbe.access_type_mask")?,
            entry_instances: self.number("fbe.num_instances")?,
            entry_replayable: replayable_bit / 8,
            entry_replayable_bit: replayable_bit % 8,
            gpu_id: self.number("gpu.id")?,
            gpu_ids: if *majors.start() < 550 { 1 } else { GPU_IDS_FROM_550 },
            gpu_max: if *majors.start() < 550 { GPU_MAX_TO_545 } else { GPU_MAX_FROM_550 },
            ..Layout::default()
        };
        let event_count = self.number("enum.UVM_PERF_EVENT_COUNT")?;
        let gpus_after_range = self.number("block.gpus-range").ok();
        let values = self.interpreted()?;
        Ok(Family { origin: Origin::Versions { majors, except }, layout, event_count, gpus_after_range, values })
    }

    /// Values of enumerations that the probes interpret. They have constants for those.
    fn interpreted(&self) -> Result<Vec<Value>, TableError> {
        const PREFIX: &str = "enum.";
        const INTERPRETED: [&str; 3] =
            ["UVM_MAKE_RESIDENT_CAUSE_", "UVM_FAULT_ACCESS_TYPE_", "UVM_PERF_EVENT_BLOCK_DESTROY"];
        let names = self.values.keys().filter_map(|key| Some((key, key.strip_prefix(PREFIX)?)));
        names
            .filter(|(_, name)| INTERPRETED.iter().any(|interpreted| name.starts_with(interpreted)))
            .map(|(key, name)| Ok(Value { name: name.to_owned(), value: self.number(key)? }))
            .collect()
    }

    /// Range of major versions: `L1_530_545` is 530 to 545, `L3_560` is 560.
    fn majors(&self) -> Option<RangeInclusive<u32>> {
        let mut numbers = self.family.split('_').skip(1).map(|text| text.parse::<u32>().ok());
        let first = numbers.next()??;
        let last = numbers.next().unwrap_or(Some(first))?;
        Some(first..=last)
    }

    fn number(&self, key: &str) -> Result<u32, TableError> {
        let value = self.values.get(key).and_then(serde_json::Value::as_u64);
        value.and_then(|value| u32::try_from(value).ok()).ok_or_else(|| self.wrong(key))
    }

    fn within(&self, key: &str, max: usize) -> Result<u32, TableError> {
        let value = self.number(key)?;
        if usize::try_from(value).is_ok_and(|value| value <= max) { Ok(value) } else { Err(self.wrong(key)) }
    }

    fn wrong(&self, key: &str) -> TableError {
        TableError::Value { family: self.family.to_owned(), key: key.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{families::va_space_file_type, uvm::tracker};

    /// What code decides by the version is in the table too, for `scripts/layouts`, which compares the
    /// table with the driver's sources.
    #[test]
    fn values_that_code_decides_by_version_are_those_of_the_table() {
        #[derive(Deserialize)]
        struct Entry {
            representative: String,
            values: BTreeMap<String, serde_json::Value>,
        }
        let table: BTreeMap<String, Entry> = serde_json::from_str(FAMILIES_JSON).unwrap();
        let families = Families::known().unwrap();
        for (name, Entry { representative: version, values }) in &table {
            let values = Values { family: name, values };
            let family = families.of(version).unwrap();
            assert_eq!(values.number("file.va_space").unwrap_or(0), va_space_file_type(version), "{name}");
            assert_eq!(values.number("mask.size").unwrap(), (family.gpu_max() + 1).div_ceil(64) * 8, "{name}");
            let places = (values.number("tracker.status").unwrap(), values.number("tracker.version").ok());
            let layout = match places {
                (48, None) => tracker::Layout::Plain,
                (48, Some(52)) => tracker::Layout::VersionLast,
                (52, Some(48)) => tracker::Layout::VersionFirst,
                _ => panic!("{name}: {places:?}"),
            };
            assert_eq!(tracker::Layout::of(version).unwrap(), layout, "{name}");
        }
    }
}
