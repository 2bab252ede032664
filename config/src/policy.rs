//! What is done about what is wrong, and how far it may go.

use std::{path::PathBuf, time::Duration};

use model::{Mode, policy::CHOOSER};
use serde::{Deserialize, Serialize};

use crate::value::{
    self, AbsolutePath, ActInterval, AuditFiles, AuditSize, Budget, CallSize, ModeName, PolicyName, Reserve, of_file,
};

/// The options about acting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Whether uvmd may act at all; without it nobody goes further than to shadow.
    #[serde(deserialize_with = "of_file")]
    pub enabled: bool,
    /// How far to go for those whom no override fits.
    #[serde(deserialize_with = "of_file")]
    pub mode: ModeName,
    /// And by which policy.
    #[serde(deserialize_with = "of_file")]
    pub policy: PolicyName,
    /// How often what is in force is looked after.
    #[serde(deserialize_with = "of_file")]
    pub interval: ActInterval,
    /// The file of overrides.
    #[serde(deserialize_with = "of_file")]
    pub overrides_file: AbsolutePath,
    /// Where uvmd keeps what must outlive it.
    #[serde(deserialize_with = "of_file")]
    pub state_dir: AbsolutePath,
    /// While this file is there, nothing acts.
    #[serde(deserialize_with = "of_file")]
    pub kill_switch: AbsolutePath,
    /// What was decided and done; in the state's folder where none is named.
    #[serde(deserialize_with = "of_file")]
    pub audit_log: Option<AbsolutePath>,
    /// What one holds before another is begun.
    #[serde(deserialize_with = "of_file")]
    pub audit_log_size: AuditSize,
    /// How many full ones are kept.
    #[serde(deserialize_with = "of_file")]
    pub audit_log_files: AuditFiles,
    /// What may be moved a second for all processes together.
    #[serde(deserialize_with = "of_file")]
    pub bytes_per_second: Budget,
    /// What may be moved a second for one process, where no override says.
    #[serde(deserialize_with = "of_file")]
    pub process_bytes_per_second: Budget,
    /// What may be moved for one process in all, where no override says.
    #[serde(deserialize_with = "of_file")]
    pub process_bytes: Option<Budget>,
    /// What of the host's memory is left alone, of the node's and of each cgroup's.
    #[serde(deserialize_with = "of_file")]
    pub host_reserve: Reserve,
    /// What one call of the driver moves at most.
    #[serde(deserialize_with = "of_file")]
    pub migrate_chunk_size: CallSize,
}

impl Policy {
    /// Where what was decided and done is written.
    #[must_use]
    pub fn audit_log(&self) -> PathBuf {
        let Self { audit_log, state_dir, .. } = self;
        audit_log.as_ref().map_or_else(|| state_dir.0.join("audit.jsonl"), |path| path.0.clone())
    }

    /// How far anybody goes at most.
    #[must_use]
    pub const fn mode_max(&self) -> Mode {
        if self.enabled { Mode::Act } else { Mode::Shadow }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            // To change what a program does is a decision.
            enabled: false,
            mode: ModeName(Mode::Observe),
            policy: PolicyName(CHOOSER.to_owned()),
            interval: value::Time(Duration::from_millis(100)),
            overrides_file: AbsolutePath("/etc/uvmd/overrides.toml".into()),
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
