//! What an operator wants for which processes.

use std::{collections::BTreeMap, time::SystemTime};

use crate::Mode;

/// Which processes, and what of their memory. All that is given must fit; nothing given fits everybody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// The process with this id.
    pub pid: Option<u32>,
    /// Of the process with that id, when it began, in clock ticks since the boot: another that has the id later is not meant.
    pub start_ticks: Option<u64>,
    /// Its name (comm), or the path of its executable if there is a "/" in it; `*` stands for any characters, here and below.
    pub executable: Option<String>,
    /// Of this user.
    pub uid: Option<u32>,
    /// In this cgroup, or below it.
    pub cgroup: Option<String>,
    /// In this container, by id or the beginning of one.
    pub container: Option<String>,
    /// In this pod, by UID.
    pub pod: Option<String>,
    /// Of this Slurm job.
    pub job: Option<String>,
    /// Address range, end exclusive.
    pub range: Option<(u64, u64)>,
    /// Minimum size of an allocation in bytes, exclusive.
    pub allocation_larger_than_bytes: Option<u64>,
}

/// Limits of migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Bytes per second.
    pub bytes_per_second: Option<u64>,
    /// Bytes over the life of one process.
    pub bytes: Option<u64>,
}

/// An override: mode, policy and limits of the processes that a selector matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// Unique name.
    pub id: String,
    /// Selector.
    pub selector: Selector,
    /// Mode.
    pub mode: Mode,
    /// Policy.
    pub policy: String,
    /// Parameters of the policy, by name.
    pub parameters: BTreeMap<String, String>,
    /// Limits of migration.
    pub budget: Budget,
    /// Precedence: the highest is selected; then the most specific selector; then the first name.
    pub priority: i32,
    /// Time of expiry.
    pub expires_at: Option<SystemTime>,
}

/// The directive for one process: mode, policy and limits of the selected override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    /// Selected override; `None` where none matches.
    pub override_id: Option<String>,
    /// Mode.
    pub mode: Mode,
    /// Policy.
    pub policy: String,
    /// Parameters of the policy, by name.
    pub parameters: BTreeMap<String, String>,
    /// Limits of migration.
    pub budget: Budget,
    /// Address range, end exclusive.
    pub range: Option<(u64, u64)>,
    /// Minimum size of an allocation in bytes, exclusive.
    pub allocation_larger_than_bytes: Option<u64>,
}
