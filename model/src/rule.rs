//! Overrides, and the directive for a process that results from them.

use std::{collections::BTreeMap, time::SystemTime};

use serde::{Deserialize, Serialize};

use crate::{MemoryRange, Mode, Selector, text};

/// Limits of migration for a process: numbers, or texts with a unit, such as `4 GiB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// Bytes per second.
    #[serde(default, deserialize_with = "text::bytes_or_text")]
    pub bytes_per_second: Option<u64>,
    /// Bytes in all.
    #[serde(default, deserialize_with = "text::bytes_or_text")]
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

impl Override {
    /// Override of all processes, with priority 0, and without parameters, limits and expiry.
    #[must_use]
    pub fn new(id: impl Into<String>, mode: Mode, policy: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            selector: Selector::default(),
            mode,
            policy: policy.into(),
            parameters: BTreeMap::new(),
            budget: Budget::default(),
            priority: 0,
            expires_at: None,
        }
    }
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
    /// Address range.
    pub range: Option<MemoryRange>,
    /// Minimum size of an allocation in bytes, exclusive.
    pub allocation_larger_than_bytes: Option<u64>,
}
