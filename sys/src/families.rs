//! Driver families: layouts by driver version, or by the driver's own types.
//!
//! * `table`: known families
//! * `kernel_numbers`: what depends on the kernel

mod kernel_numbers;
mod table;

use std::{fmt, ops::RangeInclusive};

use abi::Layout;
pub use kernel_numbers::KernelNumbers;
pub use table::TableError;

/// Name of a family that is known by its types alone.
const FROM_TYPES: &str = "from types";
/// Highest GPU id up to 545: `UVM_PARENT_ID_MAX_GPUS`.
const GPU_MAX_TO_545: u32 = 32;

/// All known families.
#[derive(Debug)]
pub struct Families(Vec<Family>);

/// Layout of the driver's structures, for a range of versions or from the types of one driver.
#[derive(Clone, Debug)]
pub struct Family {
    origin: Origin,
    /// Layout, complete except for the parts that depend on the kernel.
    layout: Layout,
    /// `UVM_PERF_EVENT_COUNT`: number of list heads in the events structure before the pointer to
    /// the VA space.
    event_count: u32,
    /// Distance from a block's pointer to its range to its array of GPU states, with pages of 4
    /// KiB; see [`Family::with_residency`].
    gpus_after_range: Option<u32>,
    /// Values of the driver's enumerations that the probes interpret.
    values: Vec<Value>,
}

/// Value of one of the driver's enumerators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) name: String,
    pub(crate) value: u32,
}

/// Where a family is from.
#[derive(Clone, Debug)]
enum Origin {
    /// Table of major versions.
    Versions {
        majors: RangeInclusive<u32>,
        /// Versions of these majors whose layout is another.
        except: Vec<String>,
    },
    /// Types of a driver of another version.
    Types {
        /// First major version of the family whose functions it is expected to have.
        like: u32,
    },
}

impl Families {
    /// Family of a driver version such as `550.163.01`.
    #[must_use]
    pub fn of(&self, version: &str) -> Option<&Family> {
        let major = major(version)?;
        self.0.iter().find(|family| match &family.origin {
            Origin::Versions { majors, except } => {
                majors.contains(&major) && !except.iter().any(|other| other == version.trim())
            }
            Origin::Types { .. } => false,
        })
    }

    /// All families, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Family> {
        self.0.iter()
    }
}

fn major(version: &str) -> Option<u32> {
    version.trim().split('.').next()?.parse().ok()
}

/// Mark of a file that represents a VA space, by driver version: `UVM_FD_VA_SPACE` of
/// `uvm_fd_type_t`, in the lowest bits of the file's private data. There are three bits since 575;
/// the value is unchanged.
#[must_use]
pub fn va_space_file_type(version: &str) -> u32 {
    match major(version) {
        // Every file of the device represents a VA space.
        Some(..530) | None => 0,
        Some(530..) => 2,
    }
}

impl fmt::Display for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, family) in self.0.iter().enumerate() {
            write!(f, "{}{family}", if at == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Versions { majors, .. } if majors.start() == majors.end() => write!(f, "{}", majors.start()),
            Origin::Versions { majors, .. } => write!(f, "{}-{}", majors.start(), majors.end()),
            Origin::Types { .. } => f.write_str(FROM_TYPES),
        }
    }
}

impl Family {
    /// Layout of this family on a kernel.
    #[must_use]
    pub const fn layout(&self, kernel: &KernelNumbers) -> Layout {
        let list_head_size = 16;
        Layout {
            events_va_space: kernel.rw_semaphore_size + self.event_count * list_head_size,
            migration_max_bytes: kernel.block_max_bytes(),
            // A reference count of 8 bytes with its padding, the lock, the range, and the first
            // address.
            block_range: 8 + kernel.mutex_size,
            block_start: 8 + kernel.mutex_size + 8,
            // The last address is in between.
            block_resident: 8 + kernel.mutex_size + 8 + 16,
            page_shift: kernel.page_size.trailing_zeros(),
            task_group_leader: kernel.task_group_leader,
            task_real_parent: kernel.task_real_parent,
            task_start_boottime: kernel.task_start_boottime,
            task_tgid: kernel.task_tgid,
            task_comm: kernel.task_comm,
            task_credentials: kernel.task_credentials,
            credentials_uid: kernel.credentials_uid,
            file_inode: kernel.file_inode,
            file_private_data: kernel.file_private_data,
            inode_device: kernel.inode_device,
            inode_mode: kernel.inode_mode,
            ..self.layout
        }
    }

    /// Layout with the offsets of a block's residency, if they follow from the family. The driver's
    /// types, if the kernel exposes them, are better evidence.
    ///
    /// Between a block's pointer to its range (`va_range`, from 565 on `managed_range`) and its
    /// array `gpus`, `struct uvm_va_block_struct` has two addresses, masks of processors and pages,
    /// and the CPU's state. It has no type of the kernel there, and nothing that a kernel
    /// configuration or a debug build changes. A processor mask has one word up to 545 and five from
    /// 550 on, and 580 has two more masks. The distance is therefore one number per family: 336 up to
    /// 545, 432 from 550 on, 536 from 580 on. `scripts/layouts --all` found it so in all 193 versions
    /// that NVIDIA published from 515.43.04 to 595.45.04, from their sources; the types of the built
    /// driver agree for 550.163.01, 570.211.01 and 580.142.
    ///
    /// Page masks have another size if pages are not of 4 KiB, which was never measured. 515 to 525
    /// have no such offsets: they lack `uvm_va_block_make_resident_copy`, through which changes are
    /// observed.
    #[must_use]
    pub fn with_residency(&self, layout: Layout) -> Layout {
        const SMALL_PAGE_SHIFT: u32 = 12;
        match self.gpus_after_range {
            Some(distance) if layout.block_gpus == 0 && layout.page_shift == SMALL_PAGE_SHIFT => {
                Layout { block_gpus: layout.block_range + distance, ..layout }
            }
            _ => layout,
        }
    }

    /// First major version; of a family from types, that of the family with the same functions.
    #[must_use]
    pub const fn first_major(&self) -> u32 {
        match &self.origin {
            Origin::Versions { majors, .. } => *majors.start(),
            Origin::Types { like } => *like,
        }
    }

    /// Family of a driver with the functions of this one, and a layout from its own types.
    pub(crate) fn with_types(&self, layout: Layout, event_count: u32) -> Self {
        let Layout { gpu_ids, gpu_max, .. } = self.layout;
        Self {
            origin: Origin::Types { like: self.first_major() },
            layout: Layout { gpu_ids, gpu_max, ..layout },
            event_count,
            gpus_after_range: None,
            values: self.values.clone(),
        }
    }

    /// Highest id of a GPU.
    pub(crate) const fn gpu_max(&self) -> u32 {
        self.layout.gpu_max
    }

    /// Values of the driver's enumerations that the probes interpret.
    pub(crate) fn values(&self) -> &[Value] {
        &self.values
    }

    /// Whether procfs names GPUs by eight ids each while events use one each.
    #[must_use]
    pub fn procfs_ids_are_eightfold(&self) -> bool {
        self.layout.gpu_max == GPU_MAX_TO_545
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{btf::Btf, fake::small_kernel};

    fn layout_of(version: &str) -> Layout {
        let file = small_kernel();
        let kernel = KernelNumbers::from_btf(&Btf::parse(&file).unwrap(), 4096).unwrap();
        Families::known().unwrap().of(version).unwrap().layout(&kernel)
    }

    #[test]
    fn family_follows_the_major_version() {
        let families = Families::known().unwrap();
        for (version, family) in [
            ("515.105.01", "515-525"),
            ("525.147.05", "515-525"),
            ("535.261.03", "530-545"),
            ("550.163.01", "550-555"),
            ("560.35.03", "560"),
            ("570.211.01", "565-575"),
            ("580.159.04\n", "580-595"),
            ("595.45.04", "580-595"),
        ] {
            assert_eq!(families.of(version).unwrap().to_string(), family, "{version}");
        }
    }

    #[test]
    fn va_space_files_are_marked_from_530() {
        let versions = ["515.105.01", "525.147.05", "530.41.03", "550.163.01", "570.211.01", "575.64.05", "580.142"];
        assert_eq!(versions.map(va_space_file_type), [0, 0, 2, 2, 2, 2, 2]);
    }

    #[test]
    fn an_unknown_version_has_no_family() {
        let families = Families::known().unwrap();
        for version in ["470.256.02", "526.1", "550.40.07", "600.1", "", "five", "-550.1"] {
            assert!(families.of(version).is_none(), "{version}");
        }
    }

    #[test]
    fn supported_versions_are_listed() {
        let list = Families::known().unwrap().to_string();
        assert_eq!(list, "515-525, 530-545, 550-555, 560, 565-575, 580-595");
    }

    #[test]
    fn every_field_of_a_family_lies_within_its_structure() {
        for family in Families::known().unwrap().iter() {
            let layout = family.layout;
            for (field, size) in [
                (layout.fault_processor, 4),
                (layout.fault_entry, 8),
                (layout.fault_is_duplicate, 1),
                (layout.fault_batch, 4),
                (layout.fault_is_write, 1),
                (layout.fault_cpu_address, 8),
                (layout.fault_cpu_pc, 8),
                (layout.migration_dst, 4),
                (layout.migration_src, 4),
                (layout.migration_address, 8),
                (layout.migration_bytes, 8),
                (layout.migration_cause, 4),
            ] {
                assert!(field % size == 0 && field + size <= layout.event_size, "{family} {field}");
            }
            for (field, size) in [
                (layout.entry_address, 8),
                (layout.entry_access, 4),
                (layout.entry_va_space, 8),
                (layout.entry_access_mask, 4),
                (layout.entry_instances, 2),
                (layout.entry_replayable, 1),
            ] {
                assert!(field % size == 0 && field + size <= layout.entry_size, "{family} {field}");
            }
            assert!(layout.entry_access_shift + layout.entry_access_bits <= 32, "{family}");
        }
    }

    #[test]
    fn the_pointer_to_the_va_space_lies_after_the_lock_and_a_list_for_each_event() {
        // 40 bytes of rw_semaphore, as on kernels of common distributions: 184 was observed on
        // 550.163.01.
        assert_eq!(layout_of("550.163.01").events_va_space, 184);
        assert_eq!(layout_of("525.147.05").events_va_space, 168);
    }

    #[test]
    fn residency_offsets_follow_from_the_family() {
        let families = Families::known().unwrap();
        let gpus = |version: &str| families.of(version).unwrap().with_residency(layout_of(version)).block_gpus;
        // The range is at 40, after a mutex of 32 bytes.
        for (version, distance) in [
            ("530.41.03", 336),
            ("535.261.03", 336),
            ("545.29.06", 336),
            ("550.40.53", 432),
            ("550.163.01", 432),
            ("555.58.02", 432),
            ("560.35.03", 432),
            ("565.57.01", 432),
            ("570.211.01", 432),
            ("575.64.05", 432),
            ("580.65.06", 536),
            ("590.48.01", 536),
            ("595.45.04", 536),
        ] {
            assert_eq!(gpus(version), 40 + distance, "{version}");
        }
        for version in ["515.105.01", "525.147.05"] {
            assert_eq!(gpus(version), 0, "{version} has no function that tells of a change");
        }
    }

    #[test]
    fn residency_offsets_follow_the_kernel_and_are_unknown_for_other_page_sizes() {
        let families = Families::known().unwrap();
        let family = families.of("580.142").unwrap();
        let layout = layout_of("580.142");
        let with = |layout| family.with_residency(layout).block_gpus;
        assert_eq!(with(Layout { block_range: 72, ..layout }), 72 + 536);
        assert_eq!(with(Layout { page_shift: 16, ..layout }), 0);
        // Offset of the driver's types.
        assert_eq!(with(Layout { block_gpus: 500, ..layout }), 500);
    }

    #[test]
    fn the_access_type_lies_beside_the_fault_type_which_grew_a_bit_with_560() {
        let access = |version| {
            let Layout { entry_access, entry_access_shift, entry_access_bits, .. } = layout_of(version);
            (entry_access, entry_access_shift, entry_access_bits)
        };
        assert_eq!(access("550.163.01"), (44, 5, 4));
        assert_eq!(access("560.35.03"), (44, 6, 4));
    }

    #[test]
    fn gpu_ids_leave_room_for_mig_instances_from_550_on() {
        assert_eq!(layout_of("535.261.03").gpu_max, 32);
        assert_eq!(layout_of("550.163.01").gpu_max, 256);
    }
}
