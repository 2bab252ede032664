//! `[[target]]`: bounds on figures under a policy, relative to the driver alone. Only comparisons
//! check them.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::table::{Fault, Table};

/// A bound that a policy must reach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Target {
    pub(crate) figure: Figure,
    /// Process of the figure; `None` for all processes together.
    pub(crate) process: Option<String>,
    pub(crate) limit: Limit,
}

/// Figure that a target bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Figure {
    FaultEntries,
    /// Replays, only of all processes together: a batch may hold faults of several.
    Replays,
    /// Bytes copied and accessed remotely, in both directions.
    LinkBytes,
}

/// Bound of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Limit {
    /// Upper bound, as a multiple of the figure under the driver alone.
    AtMost(f64),
    /// Largest deviation, as a multiple of the figure under the driver alone; or the spread of the
    /// driver's runs, if larger.
    Within(f64),
}

impl Figure {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::FaultEntries => "fault_entries",
            Self::Replays => "replays",
            Self::LinkBytes => "link_bytes",
        }
    }
}

impl Target {
    /// Parse a target; `processes` are the names of the scenario's processes.
    pub(super) fn take(mut table: Table<'_>, processes: &[&str]) -> Result<Self, Fault> {
        let figure: Figure = table.need("figure")?;
        let process: Option<String> = table.take("process")?;
        if let Some(process) = process.as_deref().filter(|process| !processes.contains(process)) {
            return Err(table.fault("process", format!("there is no process {process:?}")));
        }
        if process.is_some() && figure == Figure::Replays {
            return Err(table.fault("process", "replays exist only for all processes together"));
        }
        let limit = match (table.take("at_most")?, table.take("within")?) {
            (Some(share), None) => Limit::AtMost(share),
            (None, Some(share)) => Limit::Within(share),
            _ => return Err("a target needs one of at_most and within".into()),
        };
        let (Limit::AtMost(share) | Limit::Within(share)) = limit;
        if !(share.is_finite() && share >= 0.0) {
            return Err("a target's share must not be negative".into());
        }
        table.finish("a target")?;
        Ok(Self { figure, process, limit })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(process) = &self.process {
            write!(f, "{process}: ")?;
        }
        f.write_str(self.figure.name())
    }
}
