//! The figures of a report, and how truth and uvmd are compared: docs/truth.md as code.

use serde::Serialize;

/// One set of figures. `None`: there is no such figure in this scope.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Figures {
    pub(crate) fault_entries: Option<u64>,
    pub(crate) fault_instances: Option<u64>,
    pub(crate) cpu_faults: Option<u64>,
    pub(crate) bytes_htod: Option<u64>,
    pub(crate) bytes_dtoh: Option<u64>,
    pub(crate) evicted_bytes: Option<u64>,
    pub(crate) dropped_events: Option<u64>,
}

/// Names one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Field {
    FaultEntries,
    FaultInstances,
    CpuFaults,
    BytesHtod,
    BytesDtoh,
    EvictedBytes,
    DroppedEvents,
}

/// What figures are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Process,
    Total,
}

/// How uvmd's figure relates to the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Relation {
    /// Equal.
    Exact,
    /// There is no truth for it in this scope.
    Unknown,
    /// There is no truth for it, but it must be 0.
    Zero,
}

/// One figure, compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Comparison {
    /// A process's name, or `total`.
    pub(crate) scope: String,
    pub(crate) field: Field,
    pub(crate) relation: Relation,
    pub(crate) truth: Option<u64>,
    pub(crate) uvmd: Option<u64>,
    /// Whether the relation holds; always so where there is no truth.
    pub(crate) holds: bool,
}

// === impl Field ===

impl Field {
    pub(crate) const ALL: [Self; 7] = [
        Self::FaultEntries,
        Self::FaultInstances,
        Self::CpuFaults,
        Self::BytesHtod,
        Self::BytesDtoh,
        Self::EvictedBytes,
        Self::DroppedEvents,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::FaultEntries => "fault_entries",
            Self::FaultInstances => "fault_instances",
            Self::CpuFaults => "cpu_faults",
            Self::BytesHtod => "bytes_htod",
            Self::BytesDtoh => "bytes_dtoh",
            Self::EvictedBytes => "evicted_bytes",
            Self::DroppedEvents => "dropped_events",
        }
    }

    /// The table in docs/truth.md; a test holds the two together.
    pub(crate) const fn relation(self, scope: Scope) -> Relation {
        match (self, scope) {
            (Self::DroppedEvents, _) => Relation::Zero,
            (Self::FaultInstances | Self::EvictedBytes, Scope::Process) => Relation::Unknown,
            _ => Relation::Exact,
        }
    }
}

// === impl Figures ===

impl Figures {
    pub(crate) const fn get(&self, field: Field) -> Option<u64> {
        match field {
            Field::FaultEntries => self.fault_entries,
            Field::FaultInstances => self.fault_instances,
            Field::CpuFaults => self.cpu_faults,
            Field::BytesHtod => self.bytes_htod,
            Field::BytesDtoh => self.bytes_dtoh,
            Field::EvictedBytes => self.evicted_bytes,
            Field::DroppedEvents => self.dropped_events,
        }
    }
}

/// Compare each figure of a scope. A figure that should be there and is not does not hold.
pub(crate) fn compare(name: &str, scope: Scope, truth: &Figures, uvmd: &Figures) -> Vec<Comparison> {
    let compare = |field: Field| {
        let (relation, truth, uvmd) = (field.relation(scope), truth.get(field), uvmd.get(field));
        let holds = match relation {
            Relation::Exact => truth.is_some() && truth == uvmd,
            Relation::Zero => uvmd == Some(0),
            Relation::Unknown => true,
        };
        Comparison { scope: name.to_owned(), field, relation, truth, uvmd, holds }
    };
    Field::ALL.map(compare).into()
}

/// Compare the processes' sum of each figure that has no truth in a process, but has one in total.
pub(crate) fn compare_sums(truth: &Figures, uvmd: &[Figures]) -> Vec<Comparison> {
    let only_in_total = |field: &Field| {
        field.relation(Scope::Process) == Relation::Unknown && field.relation(Scope::Total) == Relation::Exact
    };
    let compare = |field: Field| {
        let (truth, uvmd) = (truth.get(field), uvmd.iter().map(|figures| figures.get(field)).sum::<Option<u64>>());
        let holds = truth.is_some() && truth == uvmd;
        Comparison { scope: "sum of processes".to_owned(), field, relation: Relation::Exact, truth, uvmd, holds }
    };
    Field::ALL.into_iter().filter(only_in_total).map(compare).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(values: [u64; 7]) -> Figures {
        let [fault_entries, fault_instances, cpu_faults, bytes_htod, bytes_dtoh, evicted_bytes, dropped_events] =
            values.map(Some);
        Figures { fault_entries, fault_instances, cpu_faults, bytes_htod, bytes_dtoh, evicted_bytes, dropped_events }
    }

    fn wrong(comparisons: &[Comparison]) -> Vec<&'static str> {
        comparisons.iter().filter(|comparison| !comparison.holds).map(|comparison| comparison.field.name()).collect()
    }

    #[test]
    fn equal_figures_hold() {
        let uvmd = figures([1, 2, 3, 4, 5, 6, 0]);
        let truth = Figures { dropped_events: None, ..uvmd };
        assert!(wrong(&compare("total", Scope::Total, &truth, &uvmd)).is_empty());
    }

    #[test]
    fn every_exact_figure_that_differs_is_found() {
        let truth = figures([1, 2, 3, 4, 5, 6, 0]);
        let uvmd = figures([2, 3, 4, 5, 6, 7, 1]);
        assert_eq!(wrong(&compare("total", Scope::Total, &truth, &uvmd)), Field::ALL.map(Field::name));
    }

    #[test]
    fn a_process_has_no_truth_for_instances_and_evictions() {
        let uvmd = figures([1, 2, 3, 4, 5, 6, 0]);
        let truth = Figures { fault_instances: None, evicted_bytes: None, dropped_events: None, ..uvmd };
        assert!(wrong(&compare("p", Scope::Process, &truth, &uvmd)).is_empty());
        assert_eq!(wrong(&compare("total", Scope::Total, &truth, &uvmd)), ["fault_instances", "evicted_bytes"]);
    }

    #[test]
    fn what_has_no_truth_in_a_process_must_be_right_in_their_sum() {
        let truth = figures([0, 12, 0, 0, 0, 40, 0]);
        let process = |fault_instances, evicted_bytes| figures([9, fault_instances, 9, 9, 9, evicted_bytes, 9]);
        assert!(wrong(&compare_sums(&truth, &[process(5, 40), process(7, 0)])).is_empty());
        assert_eq!(wrong(&compare_sums(&truth, &[process(5, 40), process(8, 0)])), ["fault_instances"]);
        let unknown = [process(12, 40), Figures::default()];
        assert_eq!(wrong(&compare_sums(&truth, &unknown)), ["fault_instances", "evicted_bytes"]);
    }

    #[test]
    fn a_figure_that_is_missing_does_not_hold() {
        let figures = figures([1, 2, 3, 4, 5, 6, 0]);
        let exact = ["fault_entries", "cpu_faults", "bytes_htod", "bytes_dtoh"];
        assert_eq!(wrong(&compare("p", Scope::Process, &Figures::default(), &figures)), exact);
        let missing = wrong(&compare("p", Scope::Process, &figures, &Figures::default()));
        assert_eq!(missing, [&exact[..], &["dropped_events"]].concat());
        assert!(!wrong(&compare("p", Scope::Process, &Figures::default(), &Figures::default())).is_empty());
    }

    #[test]
    fn the_table_in_the_documentation_says_the_same() {
        let document = include_str!("../../../docs/truth.md");
        let row = |field: Field, scope: &str| {
            let start = format!("| `{}` | {scope} |", field.name());
            let row =
                document.lines().find(|line| line.starts_with(&start)).unwrap_or_else(|| panic!("no row {start}"));
            row.split('|').nth(4).unwrap().trim().to_owned()
        };
        for field in Field::ALL {
            for (name, scope) in [("process", Scope::Process), ("total", Scope::Total)] {
                let expected = match field.relation(scope) {
                    Relation::Exact => "exact",
                    Relation::Unknown => "none",
                    Relation::Zero => "must be 0",
                };
                assert_eq!(row(field, name), expected, "{} {name}", field.name());
            }
        }
    }

    #[test]
    fn a_fields_name_in_json_is_its_name() {
        for field in Field::ALL {
            assert_eq!(serde_json::to_value(field).unwrap(), field.name());
        }
    }
}
