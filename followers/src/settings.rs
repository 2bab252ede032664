//! Settings of followers.

use std::time::Duration;

use model::ActuatorChoice;
use plans::ProbeQuota;

/// Maximum starts of probing while a process is followed: a program may change its iterations without end.
const PROBE_STARTS_MAX: u32 = 4;

/// Settings of followers.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Interval of the loop that acts.
    pub interval: Duration,
    /// Actuator of the node.
    pub actuator: ActuatorChoice,
    /// Probes of launches; `None` if they are not permitted.
    pub probes: Option<Probes>,
}

/// Probes of launches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Probes {
    /// Maximum bytes that they move in an iteration; a quarter of the GPU's memory by default.
    pub iteration_bytes_max: Option<u64>,
}

impl Probes {
    /// Quota of the probes of a process on a GPU with this memory.
    pub(crate) fn quota(self, gpu_bytes: u64) -> ProbeQuota {
        let iteration_bytes = self.iteration_bytes_max.unwrap_or(gpu_bytes / 4).min(gpu_bytes);
        ProbeQuota { iteration_bytes, starts: PROBE_STARTS_MAX }
    }
}
