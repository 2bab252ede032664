//! `[[target]]`: what a policy must reach on a scenario, beside the driver alone. Only comparisons look at it.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::table::{Fault, Table};

/// Something that must hold under a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Target {
    pub(crate) figure: Figure,
    /// Whose; all processes' unless given.
    pub(crate) process: Option<String>,
    pub(crate) limit: Limit,
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Figure {
    FaultEntries,
    /// Over all processes only: a batch may hold faults of several.
    Replays,
    /// Copied and accessed remotely, both ways.
    LinkBytes,
}

/// How it must be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Limit {
    /// At most so many times what it is under the driver alone.
    AtMost(f64),
    /// Off by at most so many times what it is under the driver alone, or by the driver's own spread, if that is more.
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
    /// `processes`: the scenario's.
    pub(super) fn take(mut table: Table<'_>, processes: &[&str]) -> Result<Self, Fault> {
        let figure: Figure = table.need("figure")?;
        let process: Option<String> = table.take("process")?;
        if let Some(process) = process.as_deref().filter(|process| !processes.contains(process)) {
            return Err(table.fault("process", format!("there is no process {process:?}")));
        }
        if process.is_some() && figure == Figure::Replays {
            return Err(table.fault("process", "replays are not told by process"));
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
