//! What a GPU can do at best. The figures and where they are from stand in hardware.json.

use serde::{Deserialize, Serialize};

/// No kernel is shorter: of 32,000 kernels in published profiles of V100 and A100, one in twenty takes 2 microseconds or less.
const SHORTEST_NS: u64 = 2_000;

/// A GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hardware {
    /// What it is called here.
    pub name: String,
    /// Which one exactly, and in which precision.
    pub description: String,
    /// Its memory.
    pub memory_bytes: u64,
    /// How fast that is.
    pub memory_bytes_per_s: f64,
    /// Products of matrices and convolutions.
    pub matmul_flops_per_s: f64,
    /// Everything else.
    pub vector_flops_per_s: f64,
    /// Where the figures are from.
    pub source: String,
}

/// Arithmetic, by the units that do it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Of products of matrices and convolutions; a multiplication and an addition are two.
    pub matmul_flops: f64,
    /// Of everything else.
    pub vector_flops: f64,
}

impl Hardware {
    /// All GPUs that are known.
    #[must_use]
    pub fn all() -> Vec<Self> {
        // A test reads it.
        serde_json::from_str(include_str!("hardware.json")).unwrap_or_default()
    }

    /// The one of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::all().into_iter().find(|hardware| hardware.name == name)
    }

    /// How long a kernel takes that does so much and reads and writes so many bytes.
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
        ns.max(SHORTEST_NS)
    }
}
