//! What an operator wants for which processes.

use std::{collections::BTreeMap, time::SystemTime};

use crate::Mode;

/// The policy that chooses among the others.
pub const POLICY_THAT_CHOOSES: &str = "auto-live";

/// What an override can name as its policy.
pub const POLICIES: [&str; 7] = ["observe", "ping-pong", "stream", "cycle", "hot-cold", "tenants", POLICY_THAT_CHOOSES];

/// Policies that are known to harm in some case, by which comparisons are checked. They have to be named, and are never chosen.
pub const CONTROL_POLICIES: [&str; 3] = ["pin_host", "prefetch_all", "harmful"];

/// Whether there is a policy of this name.
#[must_use]
pub fn is_policy(name: &str) -> bool {
    POLICIES.contains(&name) || CONTROL_POLICIES.contains(&name)
}

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
    /// Only memory from this address up to that one.
    pub range: Option<(u64, u64)>,
    /// Only allocations larger than so many bytes.
    pub allocation_larger_than_bytes: Option<u64>,
}

/// What uvmd may do for whom, at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// Bytes moved a second.
    pub bytes_per_second: Option<u64>,
    /// Bytes moved in all, for one process.
    pub bytes: Option<u64>,
}

/// One wish: for these processes, go so far, by this policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// Its name; no two are the same.
    pub id: String,
    /// For whom.
    pub selector: Selector,
    /// How far to go.
    pub mode: Mode,
    /// By which policy.
    pub policy: String,
    /// What it is told, by name.
    pub parameters: BTreeMap<String, String>,
    /// What it may move.
    pub budget: Budget,
    /// Of those that fit, the one with the highest is in force; then the one that says most about the process; then the first by name.
    pub priority: i32,
    /// When it ends by itself.
    pub expires: Option<SystemTime>,
}

/// What is wanted for one process, once all overrides were looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// By which override; `None` where none fits, and nothing is wanted.
    pub asked_by: Option<String>,
    /// How far to go.
    pub mode: Mode,
    /// By which policy.
    pub policy: String,
    /// What it is told, by name.
    pub parameters: BTreeMap<String, String>,
    /// What it may move.
    pub budget: Budget,
    /// Only memory from this address up to that one.
    pub range: Option<(u64, u64)>,
    /// Only allocations larger than so many bytes.
    pub allocation_larger_than_bytes: Option<u64>,
}
