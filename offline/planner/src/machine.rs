//! What a planner knows of the machine: memories and the links between them. How the machine really behaves is the simulator's.

use serde::{Deserialize, Serialize};

/// Where bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// The GPU's memory.
    Gpu,
    /// The host's memory.
    Host,
    /// Flash behind the host.
    Flash,
}

/// One direction of a link: a transfer takes the latency, then its bytes at the rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Of each transfer, before its first byte.
    pub latency_ns: f64,
    /// More than zero.
    pub bytes_per_second: f64,
}

impl Link {
    /// How long so many bytes take, rounded up.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates; nothing is negative, and a time is less than 2^53 ns"
    )]
    pub fn transfer_ns(&self, bytes: u64) -> u64 {
        (self.latency_ns + bytes as f64 * 1e9 / self.bytes_per_second).ceil() as u64
    }

    /// How many bytes cross it in a time, one transfer after the other without a pause.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; nothing is negative")]
    pub fn carried_bytes(&self, duration_ns: u64) -> u64 {
        (duration_ns as f64 * self.bytes_per_second / 1e9) as u64
    }
}

/// A memory beyond the GPU's, and both directions of the way to it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// How much it holds of this program.
    pub bytes: u64,
    /// From the GPU.
    pub out: Link,
    /// To the GPU.
    pub back: Link,
}

/// Memories and links.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The GPU's memory that the program may have.
    pub gpu_bytes: u64,
    /// The host's memory.
    pub host: Store,
    /// What is sent there goes over the host's link as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flash: Option<Store>,
}
