//! Sources of counts with which uvmd is started.

use serde::Serialize;

/// Source of counts, with the level of the driver's tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    /// Probes, by kprobes or fentry.
    Probes,
    /// The driver's tools: counters alone.
    ToolsCounters,
    /// The driver's tools: also records of copies and CPU faults.
    ToolsMoves,
    /// The driver's tools: also records of GPU faults.
    ToolsFaults,
}

impl Source {
    /// Sources that count at a time: probes, and one level of the tools. Two uvmds with tools would
    /// find VA spaces in each other's holders.
    pub(crate) const TOGETHER: [Self; 2] = [Self::Probes, Self::ToolsFaults];
    /// Sources whose counts are compared.
    pub(crate) const COUNTED: [Self; 3] = [Self::Probes, Self::ToolsFaults, Self::ToolsMoves];
    /// Sources whose cost is measured.
    pub(crate) const TIMED: [Self; 4] = [Self::Probes, Self::ToolsCounters, Self::ToolsMoves, Self::ToolsFaults];

    /// Name in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Probes => "uvmd's probes",
            Self::ToolsCounters => "uvmd's tools, level counters",
            Self::ToolsMoves => "uvmd's tools, level moves",
            Self::ToolsFaults => "uvmd's tools, level faults",
        }
    }

    /// Level of the tools; none with probes.
    pub(crate) const fn level(self) -> Option<&'static str> {
        match self {
            Self::Probes => None,
            Self::ToolsCounters => Some("counters"),
            Self::ToolsMoves => Some("moves"),
            Self::ToolsFaults => Some("faults"),
        }
    }

    /// Settings of uvmd.
    pub(crate) fn settings(self) -> Vec<String> {
        match self.level() {
            None => vec!["collector.source=probes".to_owned()],
            Some(level) => vec!["collector.source=tools".to_owned(), format!("collector.tools_level={level}")],
        }
    }

    /// Name of uvmd's log.
    pub(crate) fn log_name(self) -> String {
        self.level().map_or_else(|| "uvmd-probes.log".to_owned(), |level| format!("uvmd-tools-{level}.log"))
    }
}
