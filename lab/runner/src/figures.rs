//! Figures of a report, and the comparison of truth and uvmd: docs/truth.md as code.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::Value;

/// A figure: its name, its source in uvmd, and its relation to the truth in each scope.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    /// JSON pointers into uvmd's counts; their sum is the figure. Empty: uvmd has no such figure.
    uvmd: &'static [&'static str],
    process: Relation,
    gpu: Relation,
    total: Relation,
    /// Whether several processes may count the same event, so that their sum is more than the
    /// total.
    shared: bool,
}

/// Relation of uvmd's figure to the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Relation {
    /// Equal.
    Exact,
    /// uvmd's figure is at most the truth.
    AtMost,
    /// uvmd's figure is at least the truth.
    AtLeast,
    /// Truth or uvmd has no figure in this scope.
    Unknown,
    /// No truth exists, but uvmd's figure must be 0.
    Zero,
}

use Relation::{AtLeast, AtMost, Exact, Unknown, Zero};

/// Scope of figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Process,
    Gpu,
    Total,
}

const fn field(name: &'static str, uvmd: &'static [&'static str], [process, gpu, total]: [Relation; 3]) -> Field {
    Field { name, uvmd, process, gpu, total, shared: false }
}

pub(crate) const FAULT_ENTRIES: Field = field("fault_entries", &["/fault_entries"], [Exact, Unknown, Exact]);
pub(crate) const FAULT_INSTANCES: Field = field("fault_instances", &["/fault_instances"], [Unknown, Exact, Exact]);
/// Fault instances by the access of their entry, in the order of the driver's statistics. uvmd
/// distinguishes two kinds of atomics.
pub(crate) const INSTANCES_BY_ACCESS: [Field; 4] = [
    field("fault_instances.prefetch", &["/fault_instances_by_access/prefetch"], [Unknown, Exact, Exact]),
    field("fault_instances.read", &["/fault_instances_by_access/read"], [Unknown, Exact, Exact]),
    field("fault_instances.write", &["/fault_instances_by_access/write"], [Unknown, Exact, Exact]),
    field(
        "fault_instances.atomic",
        &["/fault_instances_by_access/atomic_weak", "/fault_instances_by_access/atomic_strong"],
        [Unknown, Exact, Exact],
    ),
];
pub(crate) const CPU_FAULTS: Field = field("cpu_faults", &["/cpu_faults"], [Exact, Unknown, Exact]);
pub(crate) const BYTES_HTOD: Field = field("bytes_htod", &["/bytes_htod"], [Exact, Exact, Exact]);
pub(crate) const BYTES_DTOH: Field = field("bytes_dtoh", &["/bytes_dtoh"], [Exact, Exact, Exact]);
pub(crate) const BYTES_DTOD: Field = field("bytes_dtod", &["/bytes_dtod"], [Unknown, Exact, Exact]);
/// Bytes copied to GPUs by faults of GPUs and CPUs, including the driver's prefetches for them.
pub(crate) const FAULT_BYTES_IN: Field = field(
    "fault_bytes_in",
    &[
        "/bytes_by_cause/htod/fault",
        "/bytes_by_cause/htod/tree_prefetch",
        "/bytes_by_cause/dtod/fault",
        "/bytes_by_cause/dtod/tree_prefetch",
    ],
    [Unknown, Exact, Exact],
);
/// Bytes copied from GPUs by these faults. Copies to another GPU are in both.
pub(crate) const FAULT_BYTES_OUT: Field = field(
    "fault_bytes_out",
    &[
        "/bytes_by_cause/dtoh/fault",
        "/bytes_by_cause/dtoh/tree_prefetch",
        "/bytes_by_cause/dtod/fault",
        "/bytes_by_cause/dtod/tree_prefetch",
    ],
    [Unknown, Unknown, Exact],
);
pub(crate) const EVICTED_BYTES: Field = field("evicted_bytes", &["/evicted_bytes"], [Exact, Exact, Exact]);
pub(crate) const EVICTED_BYTES_CAUSED: Field =
    field("induced_eviction_bytes", &["/induced_eviction_bytes"], [Exact, Unknown, Exact]);
/// Evictions, of which the truth has only those with a copy.
pub(crate) const EVICTIONS: Field = field("evictions", &["/evictions"], [AtLeast, AtLeast, AtLeast]);
pub(crate) const POPULATED_BYTES: Field = field("populated_bytes", &["/populated_bytes"], [Exact, Exact, Exact]);
/// Replays of fault batches, each of which may hold faults of several processes.
pub(crate) const REPLAYS: Field = Field { shared: true, ..field("replays", &["/replays"], [Unknown, Exact, Exact]) };
/// Throttles. The driver's statistics of a GPU count every fault of a processor that is throttled
/// already.
pub(crate) const THROTTLES: Field = field("throttles", &["/throttles"], [Exact, AtMost, Exact]);
pub(crate) const THRASHING_PAGES: Field = field("thrashing_pages", &["/thrashing_pages"], [Exact, Unknown, Exact]);
pub(crate) const REMOTE_BYTES: Field = field("remote_bytes", &[], [Unknown, Unknown, Unknown]);
pub(crate) const LINK_BYTES_HTOD: Field = field("link_bytes_htod", &[], [Unknown, Unknown, Unknown]);
pub(crate) const LINK_BYTES_DTOH: Field = field("link_bytes_dtoh", &[], [Unknown, Unknown, Unknown]);
pub(crate) const LINK_BYTES_DTOD: Field = field("link_bytes_dtod", &[], [Unknown, Unknown, Unknown]);
pub(crate) const DROPPED_EVENTS: Field = field("dropped_events", &["/dropped_events"], [Zero, Unknown, Zero]);

/// Calls of the driver by the application, and the bytes of their ranges, in the order of
/// [`crate::scenario::Call::kind`].
macro_rules! calls {
    ($($kind:literal)*) => {
        pub(crate) const CALLS: [Field; crate::scenario::Call::KINDS] = [$(field(
            concat!("api_calls.", $kind), &[concat!("/api_calls_by_kind/", $kind)], [Exact, Unknown, Exact]),)*];
        pub(crate) const CALL_BYTES: [Field; crate::scenario::Call::KINDS] = [$(field(
            concat!("api_bytes.", $kind), &[concat!("/api_bytes_by_kind/", $kind)], [Exact, Unknown, Exact]),)*];
    };
}
calls! {
    "prefetch" "set_preferred_location" "unset_preferred_location" "set_accessed_by" "unset_accessed_by" "enable_read_duplication"
    "disable_read_duplication"
}

/// Figures that every source of uvmd counts.
static OF_ALL_SOURCES: [&Field; 5] = [&FAULT_ENTRIES, &CPU_FAULTS, &BYTES_HTOD, &BYTES_DTOH, &DROPPED_EVENTS];
/// Reason why a figure is not compared.
pub(crate) const UNCOUNTED: &str = "uvmd's source does not count it";

static FIELDS: [&Field; 20] = [
    &FAULT_ENTRIES,
    &FAULT_INSTANCES,
    &CPU_FAULTS,
    &BYTES_HTOD,
    &BYTES_DTOH,
    &BYTES_DTOD,
    &FAULT_BYTES_IN,
    &FAULT_BYTES_OUT,
    &EVICTED_BYTES,
    &EVICTED_BYTES_CAUSED,
    &EVICTIONS,
    &POPULATED_BYTES,
    &REPLAYS,
    &THRASHING_PAGES,
    &THROTTLES,
    &REMOTE_BYTES,
    &LINK_BYTES_HTOD,
    &LINK_BYTES_DTOH,
    &LINK_BYTES_DTOD,
    &DROPPED_EVENTS,
];

/// All figures, in the report's order.
pub(crate) fn fields() -> impl Iterator<Item = &'static Field> {
    FIELDS.into_iter().chain(&INSTANCES_BY_ACCESS).chain(&CALLS).chain(&CALL_BYTES)
}

/// Set of figures. An absent figure is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Figures(BTreeMap<&'static str, u64>);

/// Truth of a scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Truth {
    #[serde(flatten)]
    pub(crate) figures: Figures,
    /// Reasons, by name, why a figure with a truth in other runs has none in this run.
    #[serde(rename = "not_known", skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) waived: BTreeMap<&'static str, &'static str>,
    /// Relations and reasons, by name, of figures that are exact in other runs and bounds in this
    /// run.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) bounds: BTreeMap<&'static str, (Relation, &'static str)>,
}

/// Comparison of a figure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Comparison {
    /// Name of a process, a GPU, `total`, or `all processes` for their sum.
    pub(crate) scope: String,
    pub(crate) field: &'static str,
    pub(crate) relation: Relation,
    pub(crate) truth: Option<u64>,
    pub(crate) uvmd: Option<u64>,
    /// Whether the relation holds; always true without a truth.
    pub(crate) holds: bool,
}

// === impl Field ===

impl Field {
    /// Relation, as in the table in docs/truth.md; a test compares the two.
    pub(crate) const fn relation(&self, scope: Scope) -> Relation {
        match scope {
            Scope::Process => self.process,
            Scope::Gpu => self.gpu,
            Scope::Total => self.total,
        }
    }
}

// === impl Relation ===

impl Relation {
    /// Whether the relation holds. A missing figure does not hold.
    fn holds(self, truth: Option<u64>, uvmd: Option<u64>) -> bool {
        match (self, truth.zip(uvmd)) {
            (Unknown, _) => true,
            (Zero, _) => uvmd == Some(0),
            (Exact | AtMost | AtLeast, None) => false,
            (Exact, Some((truth, uvmd))) => uvmd == truth,
            (AtMost, Some((truth, uvmd))) => uvmd <= truth,
            (AtLeast, Some((truth, uvmd))) => uvmd >= truth,
        }
    }
}

// === impl Figures ===

impl Figures {
    pub(crate) fn get(&self, field: &Field) -> Option<u64> {
        self.0.get(field.name).copied()
    }

    pub(crate) fn set(&mut self, field: &Field, figure: impl Into<Option<u64>>) {
        match figure.into() {
            Some(figure) => self.0.insert(field.name, figure),
            None => self.0.remove(field.name),
        };
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Figures in a set of uvmd's counts.
    pub(crate) fn of_uvmd(counts: &Value) -> Self {
        let mut figures = Self::default();
        for field in fields().filter(|field| !field.uvmd.is_empty()) {
            figures.set(field, field.uvmd.iter().map(|pointer| counts.pointer(pointer)?.as_u64()).sum::<Option<u64>>());
        }
        figures
    }

    /// Increase since earlier figures; an error names a figure that decreased.
    pub(crate) fn since(&self, before: &Self) -> Result<Self, &'static str> {
        let since = |(name, now): (&&'static str, &u64)| {
            let then = before.0.get(name).copied().unwrap_or(0);
            Ok((*name, now.checked_sub(then).ok_or(*name)?))
        };
        self.0.iter().map(since).collect::<Result<_, _>>().map(Self)
    }
}

impl Serialize for Figures {
    /// Write every figure, with `null` for those not known.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for field in fields() {
            map.serialize_entry(field.name, &self.get(field))?;
        }
        map.end()
    }
}

// === impl Truth ===

impl Truth {
    /// Mark a figure as not known in this run.
    pub(crate) fn waive(&mut self, field: &Field, reason: &'static str) {
        self.figures.set(field, None);
        self.waived.insert(field.name, reason);
    }

    /// Mark figures that uvmd's source does not count as not known, but for those that every source
    /// counts.
    pub(crate) fn waive_uncounted(&mut self, uvmd: &Figures) {
        for field in fields().filter(|field| !field.uvmd.is_empty() && uvmd.get(field).is_none()) {
            if !OF_ALL_SOURCES.contains(&field) {
                self.waive(field, UNCOUNTED);
            }
        }
    }

    /// Mark a figure as a bound in this run.
    pub(crate) fn loosen(&mut self, field: &Field, relation: Relation, reason: &'static str) {
        self.bounds.insert(field.name, (relation, reason));
    }

    fn relation(&self, field: &Field, scope: Scope) -> Relation {
        match field.relation(scope) {
            Zero => Zero,
            _ if self.waived.contains_key(field.name) => Unknown,
            Exact => self.bounds.get(field.name).map_or(Exact, |(relation, _)| *relation),
            relation => relation,
        }
    }
}

/// Compare each figure of a scope.
pub(crate) fn compare(name: &str, scope: Scope, truth: &Truth, uvmd: &Figures) -> Vec<Comparison> {
    let compare = |field: &'static Field| {
        let relation = truth.relation(field, scope);
        comparison(name, field, relation, truth.figures.get(field), uvmd.get(field))
    };
    fields().map(compare).collect()
}

/// Compare two uvmds with different sources: what both count is equal.
pub(crate) fn compare_sources(name: &str, probes: &Figures, tools: &Figures) -> Vec<Comparison> {
    let of_both = fields().filter(|field| probes.get(field).is_some() && tools.get(field).is_some());
    of_both.map(|field| comparison(name, field, Exact, probes.get(field), tools.get(field))).collect()
}

/// Compare the sum over processes of each figure that is exact in total and inexact in a process.
pub(crate) fn compare_sums(truth: &Truth, processes: &[(&Truth, &Figures)]) -> Vec<Comparison> {
    let inexact = |field: &Field| processes.iter().any(|(truth, _)| truth.relation(field, Scope::Process) != Exact);
    let only_in_total =
        |field: &&Field| !field.shared && truth.relation(field, Scope::Total) == Exact && inexact(field);
    let compare = |field: &'static Field| {
        let uvmd = processes.iter().map(|(_, uvmd)| uvmd.get(field)).sum::<Option<u64>>();
        comparison("all processes", field, Exact, truth.figures.get(field), uvmd)
    };
    fields().filter(only_in_total).map(compare).collect()
}

fn comparison(
    scope: &str,
    field: &'static Field,
    relation: Relation,
    truth: Option<u64>,
    uvmd: Option<u64>,
) -> Comparison {
    let holds = relation.holds(truth, uvmd);
    Comparison { scope: scope.to_owned(), field: field.name, relation, truth, uvmd, holds }
}

#[cfg(test)]
mod tests;
