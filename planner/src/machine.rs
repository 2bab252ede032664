//! Model of the machine for planners: memories and links. The simulator has the detailed model.

use serde::{Deserialize, Serialize};

/// Memory tier.
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
    /// Latency of each transfer, before its first byte.
    pub latency_ns: f64,
    /// Rate; more than zero.
    pub bytes_per_second: f64,
}

impl Link {
    /// Time of a transfer, rounded up.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates; nothing is negative, and a time is less than 2^53 ns"
    )]
    pub fn transfer_ns(&self, bytes: u64) -> u64 {
        (self.latency_ns + bytes as f64 * 1e9 / self.bytes_per_second).ceil() as u64
    }

    /// Bytes that cross the link in a time, with transfers back to back.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates; nothing is negative")]
    pub fn carried_bytes(&self, duration_ns: u64) -> u64 {
        (duration_ns as f64 * self.bytes_per_second / 1e9) as u64
    }
}

/// A memory beyond the GPU's, with both directions of its link.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// Capacity for this program.
    pub bytes: u64,
    /// Link from the GPU.
    pub out: Link,
    /// Link to the GPU.
    pub back: Link,
}

/// Memories and links.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// GPU memory that the program may use.
    pub gpu_bytes: u64,
    /// The host's memory.
    pub host: Store,
    /// Flash; its transfers cross the host's link as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flash: Option<Store>,
}
