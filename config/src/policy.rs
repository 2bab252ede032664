//! Options of acting, and its limits.

use std::{path::PathBuf, time::Duration};

use model::{ActuatorChoice, Mode, policy::CHOOSER};
use serde::{Deserialize, Serialize};

use crate::value::{
    self, AbsolutePath, ActInterval, ActuatorName, AuditFiles, AuditSize, Budget, CallSize, ModeName, PolicyName,
    Reserve, of_file,
};

/// Options of acting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Whether uvmd may act at all; otherwise `shadow` is the maximum.
    #[serde(deserialize_with = "of_file")]
    pub enabled: bool,
    /// Mode of processes without a matching override.
    #[serde(deserialize_with = "of_file")]
    pub mode: ModeName,
    /// Policy of such processes.
    #[serde(deserialize_with = "of_file")]
    pub policy: PolicyName,
    /// Actuator of orders.
    #[serde(deserialize_with = "of_file")]
    pub actuator: ActuatorName,
    /// Whether launches are probed for the memory that they access, before a plan is made.
    #[serde(deserialize_with = "of_file")]
    pub touch_probe: bool,
    /// Bytes that probes move in an iteration, both directions together; a quarter of the GPU's memory by
    /// default.
    #[serde(deserialize_with = "of_file")]
    pub touch_probe_bytes: Option<Budget>,
    /// Interval of the loop that acts.
    #[serde(deserialize_with = "of_file")]
    pub interval: ActInterval,
    /// File of overrides.
    #[serde(deserialize_with = "of_file")]
    pub overrides_file: AbsolutePath,
    /// File of overrides that `uvmd-fleet` compiles from policies of a cluster.
    #[serde(deserialize_with = "of_file")]
    pub fleet_overrides_file: Option<AbsolutePath>,
    /// State folder: files that outlive uvmd.
    #[serde(deserialize_with = "of_file")]
    pub state_dir: AbsolutePath,
    /// Kill switch: nothing acts while this file exists.
    #[serde(deserialize_with = "of_file")]
    pub kill_switch: AbsolutePath,
    /// Audit log; in the state folder by default.
    #[serde(deserialize_with = "of_file")]
    pub audit_log: Option<AbsolutePath>,
    /// Size from which a new audit log is started.
    #[serde(deserialize_with = "of_file")]
    pub audit_log_size: AuditSize,
    /// Maximum of full audit logs retained.
    #[serde(deserialize_with = "of_file")]
    pub audit_log_files: AuditFiles,
    /// Bytes migrated per second, for all processes together.
    #[serde(deserialize_with = "of_file")]
    pub bytes_per_second: Budget,
    /// Bytes migrated per second for one process, by default.
    #[serde(deserialize_with = "of_file")]
    pub process_bytes_per_second: Budget,
    /// Bytes migrated for one process in total, by default.
    #[serde(deserialize_with = "of_file")]
    pub process_bytes: Option<Budget>,
    /// Host memory that stays free, of the node and of each cgroup.
    #[serde(deserialize_with = "of_file")]
    pub host_reserve: Reserve,
    /// Maximum bytes of one migration call.
    #[serde(deserialize_with = "of_file")]
    pub migrate_chunk_size: CallSize,
}

impl Policy {
    /// Path of the audit log.
    #[must_use]
    pub fn audit_log(&self) -> PathBuf {
        let Self { audit_log, state_dir, .. } = self;
        audit_log.as_ref().map_or_else(|| state_dir.0.join("audit.jsonl"), |path| path.0.clone())
    }

    /// Maximum mode of any process.
    #[must_use]
    pub const fn mode_max(&self) -> Mode {
        if self.enabled { Mode::Act } else { Mode::Shadow }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            // Changing a program's behaviour requires a decision.
            enabled: false,
            mode: ModeName(Mode::Observe),
            policy: PolicyName(CHOOSER.to_owned()),
            actuator: ActuatorName(ActuatorChoice::Auto),
            touch_probe: false,
            touch_probe_bytes: None,
            interval: value::Time(Duration::from_millis(100)),
            overrides_file: AbsolutePath("/etc/uvmd/overrides.toml".into()),
            fleet_overrides_file: None,
            state_dir: AbsolutePath("/var/lib/uvmd".into()),
            kill_switch: AbsolutePath("/run/uvmd/policy.off".into()),
            audit_log: None,
            audit_log_size: value::Size { bytes: 16 << 20 },
            audit_log_files: value::Number(8),
            bytes_per_second: value::Size { bytes: 4 << 30 },
            process_bytes_per_second: value::Size { bytes: 4 << 30 },
            process_bytes: None,
            host_reserve: value::Size { bytes: 1 << 30 },
            migrate_chunk_size: value::Size { bytes: 2 << 20 },
        }
    }
}
