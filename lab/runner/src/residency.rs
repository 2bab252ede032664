//! Residency of a process's memory: by the driver, page by page, and by uvmd.

use serde::{Deserialize, Serialize};

use crate::scenario::size::MIB;

/// Resident bytes of an allocation. A duplicated page counts at each place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Residency {
    pub(crate) allocation: String,
    pub(crate) cpu_bytes: u64,
    /// Resident bytes at each of the machine's GPUs, by number.
    pub(crate) gpu_bytes: Vec<u64>,
    /// Bytes of pages before their first touch.
    pub(crate) nowhere_bytes: u64,
}

/// Resident bytes of a process at a GPU, as uvmd reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) bytes: u64,
    pub(crate) min_bytes: u64,
    pub(crate) max_bytes: u64,
}

/// Comparison of a process at a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Compared {
    pub(crate) process: String,
    /// Number of the GPU, from 0.
    pub(crate) gpu: usize,
    pub(crate) truth_bytes: u64,
    /// uvmd's figures; `None` if uvmd does not list the process at the GPU.
    pub(crate) uvmd: Option<Told>,
    pub(crate) holds: bool,
}

/// Divisor of the error permitted to uvmd: a hundredth of the resident bytes, or of one block if
/// less is resident.
const TOLERANCE: u64 = 100;
const LEAST_BYTES: u64 = 2 * MIB;

impl Compared {
    /// Compare a process at a GPU. Absent figures of uvmd count as 0.
    pub(crate) fn new(process: &str, gpu: usize, truth_bytes: u64, uvmd: Option<Told>) -> Self {
        let Told { bytes, min_bytes, max_bytes } = uvmd.unwrap_or_default();
        let is_close = bytes.abs_diff(truth_bytes) <= truth_bytes.max(LEAST_BYTES) / TOLERANCE;
        let holds = is_close && (min_bytes..=max_bytes).contains(&truth_bytes);
        Self { process: process.to_owned(), gpu, truth_bytes, uvmd, holds }
    }

    /// Whether the comparison fails, or memory is resident.
    pub(crate) fn is_of_interest(&self) -> bool {
        !self.holds || self.truth_bytes > 0 || self.uvmd.is_some_and(|reported| reported.max_bytes > 0)
    }
}

/// Bytes of a process in a GPU's memory.
pub(crate) fn bytes_at(residency: &[Residency], gpu: usize) -> u64 {
    residency.iter().map(|allocation| allocation.gpu_bytes.get(gpu).copied().unwrap_or(0)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(truth_bytes: u64, [bytes, min_bytes, max_bytes]: [u64; 3]) -> bool {
        Compared::new("p", 0, truth_bytes, Some(Told { bytes, min_bytes, max_bytes })).holds
    }

    #[test]
    fn an_estimate_may_be_off_by_a_hundredth() {
        let truth = 200 * MIB;
        assert!(holds(truth, [truth, truth, truth]));
        assert!(holds(truth, [198 * MIB, 198 * MIB, truth]) && holds(truth, [202 * MIB, 0, 202 * MIB]));
        assert!(!holds(truth, [198 * MIB - 1, 0, truth]) && !holds(truth, [202 * MIB + 1, 0, 300 * MIB]));
    }

    #[test]
    fn an_estimate_of_little_memory_may_be_off_by_a_hundredth_of_a_block() {
        assert!(holds(65536, [65536 - 5 * 4096, 0, 65536]) && !holds(65536, [65536 - 6 * 4096, 0, 65536]));
        assert!(!holds(0, [65536, 0, 65536]));
    }

    #[test]
    fn the_truth_lies_within_the_bounds_however_close_the_estimate_is() {
        assert!(!holds(MIB, [MIB, MIB + 1, 2 * MIB]) && !holds(MIB, [MIB, 0, MIB - 1]));
    }

    #[test]
    fn absent_figures_count_as_zero() {
        assert!(Compared::new("p", 0, 0, None).holds && !Compared::new("p", 0, MIB, None).holds);
    }
}
