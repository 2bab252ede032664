//! Where a process's memory is: by the driver, page by page, and by uvmd.

use serde::{Deserialize, Serialize};

use crate::scenario::size::MIB;

/// How much of an allocation is where. A page that is duplicated counts in each place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Residency {
    pub(crate) allocation: String,
    pub(crate) cpu_bytes: u64,
    /// For each of the machine's GPUs, by number.
    pub(crate) gpu_bytes: Vec<u64>,
    /// Pages that nobody touched yet.
    pub(crate) nowhere_bytes: u64,
}

/// What uvmd says of a process at a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) bytes: u64,
    pub(crate) min_bytes: u64,
    pub(crate) max_bytes: u64,
}

/// A process at a GPU: the two, compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Compared {
    pub(crate) process: String,
    /// By number, from 0.
    pub(crate) gpu: usize,
    pub(crate) truth_bytes: u64,
    /// Nothing from a uvmd that knows nothing of the process there.
    pub(crate) uvmd: Option<Told>,
    pub(crate) holds: bool,
}

/// How far uvmd may be off: a hundredth of what is there, or of one block where there is less.
const TOLERANCE: u64 = 100;
const LEAST_BYTES: u64 = 2 * MIB;

impl Compared {
    /// Silence is as good as 0.
    pub(crate) fn new(process: &str, gpu: usize, truth_bytes: u64, uvmd: Option<Told>) -> Self {
        let Told { bytes, min_bytes, max_bytes } = uvmd.unwrap_or_default();
        let is_close = bytes.abs_diff(truth_bytes) <= truth_bytes.max(LEAST_BYTES) / TOLERANCE;
        let holds = is_close && (min_bytes..=max_bytes).contains(&truth_bytes);
        Self { process: process.to_owned(), gpu, truth_bytes, uvmd, holds }
    }

    /// Whether there is something to say.
    pub(crate) fn is_of_interest(&self) -> bool {
        !self.holds || self.truth_bytes > 0 || self.uvmd.is_some_and(|told| told.max_bytes > 0)
    }
}

/// Bytes of a process in a GPU's memory.
pub(crate) fn bytes_at(residency: &[Residency], gpu: usize) -> u64 {
    residency.iter().map(|of_it| of_it.gpu_bytes.get(gpu).copied().unwrap_or(0)).sum()
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
    fn of_little_memory_it_may_be_off_by_a_hundredth_of_a_block() {
        assert!(holds(65536, [65536 - 5 * 4096, 0, 65536]) && !holds(65536, [65536 - 6 * 4096, 0, 65536]));
        assert!(!holds(0, [65536, 0, 65536]));
    }

    #[test]
    fn the_truth_lies_within_the_bounds_however_close_the_estimate_is() {
        assert!(!holds(MIB, [MIB, MIB + 1, 2 * MIB]) && !holds(MIB, [MIB, 0, MIB - 1]));
    }

    #[test]
    fn who_says_nothing_says_that_nothing_is_there() {
        assert!(Compared::new("p", 0, 0, None).holds && !Compared::new("p", 0, MIB, None).holds);
    }
}
