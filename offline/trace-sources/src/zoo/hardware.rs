//! Peak rates of GPUs. The figures and their sources are in hardware.json.

use serde::{Deserialize, Serialize};

/// Minimum duration of a kernel: of 32,000 kernels in published profiles of V100 and A100, one in
/// twenty takes 2 microseconds or less.
const MIN_KERNEL_NS: u64 = 2_000;

/// Peak rates of a GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// Name.
    pub name: String,
    /// Exact model, and precision of the rates.
    pub description: String,
    /// Size of the memory.
    pub memory_bytes: u64,
    /// Bandwidth of the memory.
    pub memory_bytes_per_s: f64,
    /// Rate of matrix products and convolutions.
    pub matmul_flops_per_s: f64,
    /// Rate of all other arithmetic.
    pub vector_flops_per_s: f64,
    /// Source of the figures.
    pub source: String,
}

/// Arithmetic of a kernel, by the units that execute it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// FLOP of matrix products and convolutions; a multiplication and an addition are two.
    pub matmul_flops: f64,
    /// FLOP of all other arithmetic.
    pub vector_flops: f64,
}

impl Hardware {
    /// All known GPUs.
    #[must_use]
    pub fn all() -> Vec<Self> {
        // A test checks that the file parses.
        serde_json::from_str(include_str!("hardware.json")).unwrap_or_default()
    }

    /// GPU of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|hardware| hardware.name == name)
    }

    /// Duration of a kernel with this arithmetic, which reads and writes these bytes.
    #[must_use]
    pub fn kernel_ns(&self, work: Work, bytes: u64) -> u64 {
        let Work { matmul_flops, vector_flops } = work;
        let times_s = [
            matmul_flops / self.matmul_flops_per_s,
            vector_flops / self.vector_flops_per_s,
            bytes as f64 / self.memory_bytes_per_s,
        ];
        let longest_ns = times_s.into_iter().fold(0.0, f64::max) * 1e9;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is not negative")]
        let ns = longest_ns.ceil() as u64;
        ns.max(MIN_KERNEL_NS)
    }
}
