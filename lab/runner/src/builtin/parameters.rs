//! Parameters of a driver's test, in C's layout, with the status behind them.

use gpu::Uuid;

use crate::sys::builtin::{PARAMETERS_MAX_BYTES, Parameters};

/// One parameter. Output parameters are zeroes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Item {
    /// 32-bit value; or a boolean, whose byte is followed by three of padding.
    U32(u32),
    U64(u64),
    /// Parameter that exists from 550 on.
    From550(u32),
    /// UUID of the GPU.
    Gpu,
    /// Address of managed memory.
    Managed,
    /// Id of a range group, by its index.
    RangeGroup(usize),
}

/// Values of the items that depend on the machine.
pub(crate) struct Setting {
    pub(crate) driver_major: u32,
    pub(crate) gpu: Uuid,
    pub(crate) managed: u64,
    pub(crate) range_groups: [u64; 4],
}

/// Parameters of a test, and the offset of its status.
pub(crate) struct Layout {
    pub(crate) parameters: Parameters,
    status_at: usize,
}

/// Lays parameters out: each at a multiple of its size, as C does; a UUID is sixteen bytes.
pub(crate) fn lay_out(items: &[Item], setting: &Setting) -> Layout {
    let mut bytes = Vec::new();
    for item in items {
        match *item {
            Item::U32(value) => bytes.extend(value.to_le_bytes()),
            Item::U64(value) => aligned(&mut bytes, value),
            Item::From550(value) if setting.driver_major >= 550 => bytes.extend(value.to_le_bytes()),
            Item::From550(_) => {}
            Item::Gpu => bytes.extend(setting.gpu),
            Item::Managed => aligned(&mut bytes, setting.managed),
            Item::RangeGroup(at) => aligned(&mut bytes, setting.range_groups.get(at).copied().unwrap_or_default()),
        }
    }
    let status_at = bytes.len();
    bytes.resize(PARAMETERS_MAX_BYTES, 0);
    let mut parameters = Parameters([0; PARAMETERS_MAX_BYTES]);
    parameters.0.copy_from_slice(&bytes);
    Layout { parameters, status_at }
}

fn aligned(bytes: &mut Vec<u8>, value: u64) {
    bytes.resize(bytes.len().next_multiple_of(size_of::<u64>()), 0);
    bytes.extend(value.to_le_bytes());
}

impl Layout {
    /// `rmStatus`, as the driver wrote it.
    pub(crate) fn status(&self) -> u32 {
        let status = self.parameters.0.get(self.status_at..self.status_at + size_of::<u32>());
        // An offset beyond the end must not read as success.
        status.and_then(|bytes| bytes.try_into().ok()).map_or(u32::MAX, u32::from_le_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::TESTS, *};

    fn setting(driver_major: u32) -> Setting {
        Setting { driver_major, gpu: [0xab; 16], managed: 0x1234_5678_9abc, range_groups: [5, 6, 7, 8] }
    }

    /// Offsets by each driver's `uvm_test_ioctl.h`.
    #[test]
    fn the_status_is_where_the_driver_has_it() {
        for (name, at_535, at_550) in [
            ("RNG_SANITY", 0, 0),
            ("RANGE_GROUP_TREE", 32, 32),
            ("PUSH_SANITY", 4, 4),
            ("CHANNEL_STRESS", 20, 24),
            ("RANGE_TREE_RANDOM", 168, 168),
            ("RANGE_ALLOCATOR_SANITY", 12, 12),
            ("PERF_MODULE_SANITY", 12, 12),
            ("PMA_ALLOC_FREE", 52, 52),
            ("PMM_CHECK_LEAK", 40, 40),
            ("DRAIN_REPLAYABLE_FAULTS", 24, 24),
            ("RB_TREE_RANDOM", 24, 24),
            ("THREAD_CONTEXT_PERF", 16, 16),
        ] {
            let test = TESTS.iter().find(|test| test.name == name).unwrap();
            assert_eq!(lay_out(test.items, &setting(535)).status_at, at_535, "{name} on 535");
            assert_eq!(lay_out(test.items, &setting(550)).status_at, at_550, "{name} on 550");
        }
    }

    #[test]
    fn every_test_fits_into_the_parameters_with_its_status() {
        for test in TESTS {
            assert!(lay_out(test.items, &setting(550)).status_at + 4 <= PARAMETERS_MAX_BYTES, "{}", test.name);
        }
    }

    #[test]
    fn values_have_the_offsets_of_c() {
        let layout = lay_out(&[Item::U32(1), Item::Managed, Item::U32(7)], &setting(550));
        assert_eq!(layout.parameters.0[..4], [1, 0, 0, 0]);
        assert_eq!(layout.parameters.0[8..16], 0x1234_5678_9abc_u64.to_le_bytes());
        assert_eq!(layout.parameters.0[16..20], [7, 0, 0, 0]);
        assert_eq!(layout.status(), 0);
        assert_eq!(lay_out(&[Item::Gpu], &setting(550)).parameters.0[..16], [0xab; 16]);
    }
}
