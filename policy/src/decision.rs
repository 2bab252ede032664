//! Decision from counts to a kind of verdict. A pure function: the inputs suffice to repeat it.

use model::{
    VerdictKind,
    block::BLOCK_BYTES,
    verdict::{Check, Inputs},
};

use crate::thresholds::{LENIENCY, THRESHOLDS};

/// Kinds, the most specific first: the first whose conditions all hold is selected.
pub const ORDER: [VerdictKind; 5] = [
    VerdictKind::DriverThrottling,
    VerdictKind::CapacityThrash,
    VerdictKind::PingPong,
    VerdictKind::Streaming,
    VerdictKind::FirstTouchStorm,
];

/// Result of a decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Kind of the verdict, if there is one.
    pub kind: Option<VerdictKind>,
    /// Conditions of that kind, with their values.
    pub checks: Vec<Check>,
}

/// Decides on a kind. `current`: the verdict in force, whose own conditions are more lenient, so
/// that it does not flap.
#[must_use]
pub fn decide(inputs: &Inputs, current: Option<VerdictKind>) -> Decision {
    let shares = Shares::of(inputs);
    for kind in ORDER {
        let checks: Vec<Check> =
            conditions(kind, inputs, &shares).map(|condition| condition.check(current == Some(kind))).collect();
        if checks.iter().all(|check| check.met) {
            return Decision { kind: Some(kind), checks };
        }
    }
    Decision { kind: None, checks: Vec::new() }
}

/// Names of the checks of a kind.
#[must_use]
pub fn check_names(kind: VerdictKind) -> Vec<&'static str> {
    let inputs = Inputs::default();
    conditions(kind, &inputs, &Shares::of(&inputs)).map(|condition| condition.name).collect()
}

/// Whether a kind comes before another in [`ORDER`].
pub(crate) fn precedes(one: VerdictKind, other: VerdictKind) -> bool {
    ORDER.iter().find(|kind| [one, other].contains(kind)) == Some(&one) && one != other
}

/// Quantities that the conditions compare.
struct Shares {
    arrived_bytes: f64,
    evicted: f64,
    refetched: f64,
    cpu_reclaimed: f64,
    readback: f64,
    populated: f64,
    /// Fetched bytes for which there are block records.
    recorded: f64,
    throttles: f64,
    faults_per_populated_block: f64,
}

impl Shares {
    fn of(inputs: &Inputs) -> Self {
        let bytes_htod = inputs.bytes_htod as f64;
        let arrived_bytes = bytes_htod + inputs.populated_bytes as f64;
        let of_arrived = |bytes: f64| if arrived_bytes > 0.0 { bytes / arrived_bytes } else { 0.0 };
        let fetched_bytes = inputs.fetched_bytes as f64;
        let recorded = if bytes_htod > 0.0 { (fetched_bytes / bytes_htod).min(1.0) } else { 1.0 };
        // Only a share r of the records is written. For memory that repeatedly leaves and arrives,
        // a departure is recorded between two recorded fetches in 1 / (2 - r) of the cases; for
        // memory that leaves once, in fewer. The result is therefore no overestimate.
        let came_back = |bytes: u64| {
            let of_recorded = if fetched_bytes > 0.0 { bytes as f64 / fetched_bytes } else { 0.0 };
            of_arrived((of_recorded * (2.0 - recorded)).min(1.0) * bytes_htod)
        };
        let sides = inputs.throttles.saturating_add(inputs.bounces);
        let populated_blocks = inputs.populated_bytes as f64 / BLOCK_BYTES as f64;
        Self {
            arrived_bytes,
            evicted: of_arrived(inputs.evicted_bytes.max(inputs.induced_eviction_bytes) as f64),
            refetched: came_back(inputs.refetched_bytes),
            cpu_reclaimed: came_back(inputs.cpu_reclaimed_bytes),
            readback: of_arrived(inputs.bytes_dtoh.saturating_sub(inputs.evicted_bytes) as f64),
            populated: of_arrived(inputs.populated_bytes as f64),
            recorded,
            throttles: if sides > 0 { inputs.throttles as f64 / sides as f64 } else { 0.0 },
            faults_per_populated_block: if populated_blocks > 0.0 {
                inputs.fault_entries as f64 / populated_blocks
            } else {
                0.0
            },
        }
    }
}

/// A condition: a value and its threshold.
struct Condition {
    name: &'static str,
    what: &'static str,
    value: f64,
    limit: Limit,
}

enum Limit {
    AtLeast(f64),
    Below(f64),
}

impl Condition {
    fn check(self, lenient: bool) -> Check {
        let Self { name, what, value, limit } = self;
        let slack = if lenient { 1.0 - LENIENCY } else { 0.0 };
        let (threshold, holds) = match limit {
            Limit::AtLeast(limit) => (limit * (1.0 - slack), value >= limit * (1.0 - slack)),
            Limit::Below(limit) => (limit * (1.0 + slack), value < limit * (1.0 + slack)),
        };
        Check { description: what, name, value, threshold, met: holds }
    }
}

fn conditions(kind: VerdictKind, inputs: &Inputs, shares: &Shares) -> impl Iterator<Item = Condition> {
    use Limit::{AtLeast, Below};
    let limits = &THRESHOLDS;
    let condition = |name, what, value, limit| Condition { name, what, value, limit };
    let arrived = || {
        condition(
            "arrived_bytes",
            "bytes fetched or populated: at least",
            shares.arrived_bytes,
            AtLeast(limits.arrived_bytes),
        )
    };
    let recorded = || {
        let what = "fetched bytes covered by block records, as a ratio: at least";
        condition("recorded_ratio", what, shares.recorded, AtLeast(limits.recorded_ratio))
    };
    let evicted = |limit| {
        let what = match limit {
            AtLeast(_) => "bytes evicted from or for the process, to arrived bytes: at least",
            Below(_) => "bytes evicted from or for the process, to arrived bytes: less than",
        };
        condition("eviction_ratio", what, shares.evicted, limit)
    };
    let refetched = |limit| {
        let what = match limit {
            AtLeast(_) => "refetched bytes, to arrived bytes: at least",
            Below(_) => "refetched bytes, to arrived bytes: less than",
        };
        condition("refetch_ratio", what, shares.refetched, limit)
    };
    match kind {
        VerdictKind::DriverThrottling => vec![
            condition(
                "throttles",
                "throttles of processors by the driver: at least",
                inputs.throttles as f64,
                AtLeast(limits.throttles),
            ),
            condition(
                "throttle_ratio",
                "throttles, to throttles and bounces: at least",
                shares.throttles,
                AtLeast(limits.throttle_ratio),
            ),
            refetched(Below(limits.share)),
        ],
        VerdictKind::CapacityThrash => vec![
            arrived(),
            recorded(),
            evicted(AtLeast(limits.share)),
            refetched(AtLeast(limits.share)),
            condition(
                "refetched_to_cpu_reclaimed",
                "refetched bytes, to arrived bytes: at least the ratio of bytes reclaimed by the CPU",
                shares.refetched,
                AtLeast(shares.cpu_reclaimed),
            ),
        ],
        VerdictKind::PingPong => vec![
            condition(
                "bounces",
                "bounces of blocks between CPU and GPU: at least",
                inputs.bounces as f64,
                AtLeast(limits.bounces),
            ),
            condition(
                "cpu_reclaimed_ratio",
                "bytes reclaimed by the CPU that arrived again, to arrived bytes: at least",
                shares.cpu_reclaimed,
                AtLeast(limits.share),
            ),
            condition(
                "readback_ratio",
                "bytes read back to the host without eviction, to arrived bytes: at least",
                shares.readback,
                AtLeast(limits.share),
            ),
        ],
        VerdictKind::Streaming => {
            vec![arrived(), recorded(), evicted(AtLeast(limits.share)), refetched(Below(limits.share))]
        }
        VerdictKind::FirstTouchStorm => vec![
            arrived(),
            condition(
                "populated_ratio",
                "populated bytes, to arrived bytes: at least",
                shares.populated,
                AtLeast(limits.populated_ratio),
            ),
            evicted(Below(limits.share)),
            condition(
                "faults_per_populated_block",
                "GPU faults for each 2 MiB populated: at least",
                shares.faults_per_populated_block,
                AtLeast(limits.faults_per_populated_block),
            ),
        ],
    }
    .into_iter()
}
