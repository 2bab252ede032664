//! Window of addresses from which all allocations are: managed, device and host memory, in this
//! order.

use std::sync::atomic::{AtomicU8, Ordering};

use ptx::GRANULE_BYTES;

use super::{Kind, Range, space::Space};

/// First address: far from what the system and sanitizers use.
pub(super) const BASE: u64 = 0x2000_0000_0000;
/// Addresses of each kind of memory.
pub(super) const SPACE_BYTES: u64 = 1 << 40;
/// Length.
pub(super) const BYTES: u64 = 3 * SPACE_BYTES;
/// First address of device memory.
pub(super) const DEVICE_BASE: u64 = BASE + SPACE_BYTES;
/// First address of host memory.
pub(super) const HOST_BASE: u64 = DEVICE_BASE + SPACE_BYTES;
/// Device memory is charged in multiples of this.
const CHARGE_BYTES: u64 = 512;

/// All that a device may do with memory that does not migrate.
pub(super) const ALLOWED: u8 = ptx::permission::READ | ptx::permission::WRITE | ptx::permission::ATOMIC;

/// Whether an address is of the window.
pub(super) const fn contains(address: u64) -> bool {
    address >= BASE && address < BASE + BYTES
}

/// Device memory that an allocation is charged with, in bytes.
pub(super) const fn charge(bytes: u64) -> u64 {
    if bytes == 0 { CHARGE_BYTES } else { bytes.div_ceil(CHARGE_BYTES).saturating_mul(CHARGE_BYTES) }
}

/// Number of the granule of an address.
fn granule(address: u64) -> usize {
    usize::try_from(address.saturating_sub(BASE) / GRANULE_BYTES).unwrap_or(usize::MAX)
}

/// Granules of a range, of a table that has one byte for each of the window.
pub(super) fn granules(table: &[AtomicU8], range: Range) -> &[AtomicU8] {
    let granules = granule(range.address)..granule(range.end().saturating_add(GRANULE_BYTES - 1));
    table.get(granules).unwrap_or_default()
}

/// Sets the permissions of a range.
pub(super) fn permit(table: &[AtomicU8], range: Range, permissions: u8) {
    for granule in granules(table, range) {
        granule.store(permissions, Ordering::Release);
    }
}

/// Whether all of a range has a permission.
pub(super) fn permits(table: &[AtomicU8], range: Range, permission: u8) -> bool {
    let granules = granules(table, range);
    !granules.is_empty() && granules.iter().all(|granule| granule.load(Ordering::Acquire) & permission != 0)
}

/// Addresses of the window that are free, by kind of memory.
#[derive(Debug)]
pub(super) struct Spaces {
    managed: Space,
    device: Space,
    host: Space,
}

impl Spaces {
    /// Whole window, free.
    pub(super) const fn new() -> Self {
        Self {
            managed: Space::new(BASE, SPACE_BYTES),
            device: Space::new(DEVICE_BASE, SPACE_BYTES),
            host: Space::new(HOST_BASE, SPACE_BYTES),
        }
    }

    fn of(&mut self, kind: Kind) -> &mut Space {
        match kind {
            Kind::Managed => &mut self.managed,
            Kind::Device(_) => &mut self.device,
            Kind::Host => &mut self.host,
        }
    }

    /// Takes addresses for an allocation.
    pub(super) fn take(&mut self, kind: Kind, bytes: u64) -> Option<u64> {
        self.of(kind).take(bytes)
    }

    /// Gives the addresses of an allocation back.
    pub(super) fn give(&mut self, kind: Kind, range: Range) {
        self.of(kind).give(range.address, range.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_the_permissions_of_all_its_granules() {
        let table: Vec<AtomicU8> = (0..4).map(|_| AtomicU8::new(0)).collect();
        let range = |granule, bytes| Range { address: BASE + granule * GRANULE_BYTES, bytes };
        permit(&table, range(1, GRANULE_BYTES + 1), ALLOWED);
        assert!(permits(&table, range(1, 2 * GRANULE_BYTES), ptx::permission::WRITE));
        assert!(!permits(&table, range(1, 2 * GRANULE_BYTES + 1), ptx::permission::WRITE));
        assert!(!permits(&table, range(0, 1), ptx::permission::READ));
        assert!(!permits(&table, range(1 << 30, 1), ptx::permission::READ));
    }

    #[test]
    fn charges_are_of_whole_units() {
        assert_eq!([0, 1, 512, 513].map(charge), [512, 512, 512, 1024]);
    }
}
