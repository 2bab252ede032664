//! BTF of a driver, made from a layout.

use abi::Layout;

use super::{file_of, small_kernel};
use crate::{btf::Btf, families::Family};

/// Bytes of the driver's mask of processors with 257 ids.
const MASK_BYTES: u32 = 40;

/// Types of a driver, for [`small_kernel`].
#[derive(Debug, Default)]
struct Types {
    strings: Vec<u8>,
    words: Vec<u32>,
    count: u32,
}

impl Types {
    fn name(&mut self, text: &str) -> u32 {
        let kernel = small_kernel();
        let before = u32::from_ne_bytes(kernel[20..24].try_into().unwrap());
        let at = u32::try_from(self.strings.len()).unwrap();
        self.strings.extend(text.as_bytes());
        self.strings.push(0);
        before + at
    }

    fn add(&mut self, words: &[u32]) -> u32 {
        self.words.extend(words);
        self.count += 1;
        // The kernel's come first.
        let kernel = small_kernel();
        Btf::parse(&kernel).unwrap().types() + self.count
    }

    /// Structure of members: name, type, offset in bits, and width of a bit field or 0.
    fn structure(&mut self, bytes: u32, members: &[(&str, u32, u32, u32)]) -> u32 {
        let mut words = vec![0, 1 << 31 | 4 << 24 | u32::try_from(members.len()).unwrap(), bytes];
        for (name, of, bit, width) in members {
            words.extend([self.name(name), *of, width << 24 | bit]);
        }
        self.add(&words)
    }

    fn alias(&mut self, name: &str, of: u32) {
        let words = [self.name(name), 8 << 24, of];
        self.add(&words);
    }

    fn enumeration(&mut self, values: &[(String, u32)]) {
        let mut words = vec![0, 6 << 24 | u32::try_from(values.len()).unwrap(), 4];
        for (name, value) in values {
            words.extend([self.name(name), *value]);
        }
        self.add(&words);
    }
}

/// Types of a driver with this layout of this family. `change`: its enumerators, which it may
/// change; the first is the event of faults.
pub fn driver_with(family: &Family, layout: &Layout, change: impl FnOnce(&mut Vec<(String, u32)>)) -> Vec<u8> {
    const INT: u32 = 1;
    let mut types = Types { strings: vec![0], ..Types::default() };
    let field = |name, byte: u32| (name, INT, byte * 8, 0);
    let gpu = types.structure(
        32,
        &[
            field("buffer_entry", layout.fault_entry),
            field("batch_id", layout.fault_batch),
            field("is_duplicate", layout.fault_is_duplicate),
        ],
    );
    let cpu = types.structure(
        48,
        &[
            field("fault_va", layout.fault_cpu_address),
            field("pc", layout.fault_cpu_pc),
            field("is_write", layout.fault_is_write),
        ],
    );
    let fault =
        types.structure(64, &[field("proc_id", layout.fault_processor), ("gpu", gpu, 0, 0), ("cpu", cpu, 0, 0)]);
    let migration = types.structure(
        72,
        &[
            field("dst", layout.migration_dst),
            field("src", layout.migration_src),
            field("address", layout.migration_address),
            field("bytes", layout.migration_bytes),
            field("cause", layout.migration_cause),
        ],
    );
    let event = types.structure(layout.event_size, &[("fault", fault, 0, 0), ("migration", migration, 0, 0)]);
    types.alias("uvm_perf_event_data_t", event);
    let access_bit = layout.entry_access * 8 + layout.entry_access_shift;
    let entry = types.structure(
        layout.entry_size,
        &[
            field("fault_address", layout.entry_address),
            ("fault_access_type", INT, access_bit, layout.entry_access_bits),
            field("va_space", layout.entry_va_space),
            ("is_replayable", INT, layout.entry_replayable * 8 + layout.entry_replayable_bit, 1),
            field("access_type_mask", layout.entry_access_mask),
            field("num_instances", layout.entry_instances),
        ],
    );
    types.alias("uvm_fault_buffer_entry_t", entry);
    let gpu = types.structure(256, &[field("id", layout.gpu_id)]);
    types.alias("uvm_gpu_t", gpu);
    let mask = types.structure(MASK_BYTES, &[field("bitmap", 0)]);
    types.alias("uvm_processor_mask_t", mask);
    let events = types.structure(256, &[field("va_space", layout.events_va_space)]);
    types.alias("uvm_perf_va_space_events_t", events);
    let block = types.structure(
        1024,
        &[
            field("managed_range", layout.block_range),
            field("start", layout.block_start),
            field("resident", layout.block_resident),
        ],
    );
    types.alias("uvm_va_block_t", block);
    let events = [
        ("UVM_PERF_EVENT_FAULT", layout.event_fault),
        ("UVM_PERF_EVENT_MIGRATION", layout.event_migration),
        ("UVM_PERF_EVENT_COUNT", 9),
    ];
    let interpreted = family.values().iter().map(|value| (value.name.clone(), value.value));
    let mut values: Vec<_> =
        events.into_iter().map(|(name, value)| (name.to_owned(), value)).chain(interpreted).collect();
    change(&mut values);
    types.enumeration(&values);
    file_of(&types.words, &types.strings)
}
