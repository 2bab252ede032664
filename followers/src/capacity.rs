//! Managed memory of a process that a GPU holds, as far as evictions show it.

use std::collections::VecDeque;

use model::{Counters, Residency};

/// Maximum difference of the bounds of the resident bytes, as a share of these, at which they count as
/// known.
const UNCERTAINTY_MAX: f64 = 0.02;
/// Number of latest measurements that count: other programs come to the GPU and go.
const MEASUREMENTS_MAX: usize = 16;

/// Maximum managed bytes of a process on a GPU, measured while the driver evicts the process's memory for
/// the process itself.
///
/// The GPU is full then. Its total memory would be too large a capacity: page tables, contexts and
/// unrecorded memory take some of it.
#[derive(Debug, Default)]
pub(crate) struct Capacity {
    /// Counters of the process at the last observation.
    before: Option<Counters>,
    /// Resident bytes of the last measurements.
    measured_bytes: VecDeque<u64>,
}

impl Capacity {
    /// Adds the counters of the process at the GPU, and its resident bytes there, if these are known.
    pub(crate) fn observe(&mut self, counters: &Counters, resident: Option<Residency>) {
        let before = self.before.replace(counters.clone());
        let is_full = before.is_some_and(|before| {
            counters.evictions > before.evictions && counters.induced_evictions > before.induced_evictions
        });
        let Some(Residency { min_bytes, max_bytes, .. }) = resident.filter(|_| is_full) else { return };
        let is_known = max_bytes.saturating_sub(min_bytes) as f64 <= min_bytes as f64 * UNCERTAINTY_MAX;
        if min_bytes > 0 && is_known {
            self.measured_bytes.push_back(min_bytes);
            if self.measured_bytes.len() > MEASUREMENTS_MAX {
                self.measured_bytes.pop_front();
            }
        }
    }

    /// The bytes, if the driver has evicted and they are known.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.measured_bytes.iter().copied().max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counters(evictions: u64, induced_evictions: u64) -> Counters {
        Counters { evictions, induced_evictions, ..Counters::ZERO }
    }

    fn observed(observations: &[(u64, u64, Residency)]) -> Option<u64> {
        let mut capacity = Capacity::default();
        for (evictions, induced, resident) in observations {
            capacity.observe(&counters(*evictions, *induced), Some(*resident));
        }
        capacity.bytes()
    }

    #[test]
    fn capacity_is_the_peak_residency_while_a_process_evicts_itself() {
        let exactly = Residency::exactly;
        // Earlier evictions belong to another time.
        assert_eq!(observed(&[(7, 7, exactly(90))]), None);
        let thrashing = [(7, 7, exactly(90)), (8, 8, exactly(60)), (9, 9, exactly(62)), (9, 9, exactly(80))];
        assert_eq!(observed(&thrashing), Some(62));
    }

    #[test]
    fn evictions_between_processes_do_not_count() {
        let exactly = Residency::exactly;
        assert_eq!(observed(&[(0, 0, exactly(50)), (1, 0, exactly(40)), (2, 0, exactly(30))]), None);
        assert_eq!(observed(&[(0, 0, exactly(50)), (0, 1, exactly(60)), (0, 2, exactly(70))]), None);
    }

    #[test]
    fn uncertain_residency_is_ignored_and_the_lower_bound_counts() {
        let known = |min_bytes, max_bytes| Residency { bytes: max_bytes, min_bytes, max_bytes };
        assert_eq!(observed(&[(0, 0, known(9, 9)), (1, 1, known(50, 100)), (2, 2, known(0, 0))]), None);
        assert_eq!(observed(&[(0, 0, known(9, 9)), (1, 1, known(99, 100))]), Some(99));
        let mut capacity = Capacity::default();
        capacity.observe(&counters(0, 0), None);
        capacity.observe(&counters(1, 1), None);
        // The evictions came before the residency was known.
        capacity.observe(&counters(1, 1), Some(Residency::exactly(7)));
        assert_eq!(capacity.bytes(), None);
    }

    #[test]
    fn old_measurements_are_dropped() {
        let mut capacity = Capacity::default();
        for tick in 0..40 {
            let resident_bytes = if tick < 20 { 80 } else { 40 };
            capacity.observe(&counters(tick, tick), Some(Residency::exactly(resident_bytes)));
        }
        assert_eq!(capacity.bytes(), Some(40));
    }
}
