//! Managed memory of a process that a GPU holds, as far as evictions show it.

use model::Residency;

/// Most that the bounds of the resident bytes may differ by, as a share of them, for the bytes to be known.
const UNCERTAINTY_MAX: f64 = 0.02;

/// Most managed bytes of a process on a GPU at times at which the driver evicts: the GPU is full then.
///
/// Its size says less. What page tables, contexts and other processes take is not known of all of them.
#[derive(Debug, Default)]
pub(super) struct Capacity {
    /// Evictions on the GPU until the last observation.
    evictions: Option<u64>,
    bytes: Option<u64>,
}

impl Capacity {
    /// Adds the evictions on the GPU since it is counted, and the resident bytes of the process there.
    pub(super) fn observe(&mut self, evictions: u64, resident: Residency) {
        let before = self.evictions.replace(evictions);
        let is_full = before.is_some_and(|before| evictions > before);
        let uncertain_bytes = resident.max_bytes.saturating_sub(resident.min_bytes);
        if is_full && uncertain_bytes as f64 <= resident.bytes as f64 * UNCERTAINTY_MAX {
            self.bytes = self.bytes.max(Some(resident.bytes));
        }
    }

    /// The bytes, if the driver has evicted and they are known.
    pub(super) const fn bytes(&self) -> Option<u64> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_is_what_is_resident_at_most_while_the_driver_evicts() {
        let mut capacity = Capacity::default();
        // What was evicted before is of another time.
        capacity.observe(7, Residency::exactly(90));
        assert_eq!(capacity.bytes(), None);
        for (evictions, resident_bytes) in [(8, 60), (9, 62), (9, 80), (12, 58)] {
            capacity.observe(evictions, Residency::exactly(resident_bytes));
        }
        assert_eq!(capacity.bytes(), Some(62));
    }

    #[test]
    fn bytes_that_are_not_known_do_not_count() {
        let mut capacity = Capacity::default();
        capacity.observe(0, Residency::exactly(100));
        capacity.observe(1, Residency { bytes: 100, min_bytes: 50, max_bytes: 100 });
        assert_eq!(capacity.bytes(), None);
        capacity.observe(2, Residency { bytes: 100, min_bytes: 99, max_bytes: 101 });
        assert_eq!(capacity.bytes(), Some(100));
    }
}
