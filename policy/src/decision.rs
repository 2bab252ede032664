//! Decision from counts to a kind of verdict. A pure function: the inputs suffice to repeat it.

use model::{
    Capabilities, VerdictKind,
    block::BLOCK_BYTES,
    text,
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
    decide_as(inputs, current, Capabilities::ALL)
}

/// Decides on a kind, among those whose inputs are counted: a 0 for what is not counted proves nothing.
#[must_use]
pub fn decide_as(inputs: &Inputs, current: Option<VerdictKind>, capabilities: Capabilities) -> Decision {
    let shares = Shares::of(inputs);
    for kind in ORDER.into_iter().filter(|kind| kind.is_judged(capabilities)) {
        let is_lenient = current == Some(kind);
        let conditions: Vec<Condition> = conditions(kind, inputs, &shares).collect();
        // Sentences are made for the kind that holds alone: most processes have none, in every window.
        if conditions.iter().all(|condition| condition.is_met(is_lenient)) {
            let checks = conditions.into_iter().map(|condition| condition.check(is_lenient)).collect();
            return Decision { kind: Some(kind), checks };
        }
    }
    Decision { kind: None, checks: Vec::new() }
}

/// Names of the checks of a kind.
#[must_use]
pub fn check_names(kind: VerdictKind) -> Vec<&'static str> {
    let mut names = Vec::new();
    // Between CPUs and the GPU, and between GPUs.
    for inputs in [Inputs::default(), Inputs { peer_bounces: 1, ..Inputs::default() }] {
        for condition in conditions(kind, &inputs, &Shares::of(&inputs)) {
            if !names.contains(&condition.name) {
                names.push(condition.name);
            }
        }
    }
    names
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
    peer_reclaimed: f64,
    readback: f64,
    populated: f64,
    /// Fetched bytes for which there are block records.
    recorded: f64,
    throttles: f64,
    faults_per_populated_block: f64,
}

impl Shares {
    fn of(inputs: &Inputs) -> Self {
        let copied_bytes = inputs.copied_bytes() as f64;
        let arrived_bytes = copied_bytes + inputs.populated_bytes as f64;
        let of_arrived = |bytes: f64| if arrived_bytes > 0.0 { bytes / arrived_bytes } else { 0.0 };
        let fetched_bytes = inputs.fetched_bytes as f64;
        let recorded = if copied_bytes > 0.0 { (fetched_bytes / copied_bytes).min(1.0) } else { 1.0 };
        // Only a share r of the records is written. For memory that repeatedly leaves and arrives,
        // a departure is recorded between two recorded fetches in 1 / (2 - r) of the cases; for
        // memory that leaves once, in fewer. The result is therefore no overestimate.
        let came_back = |bytes: u64| {
            let of_recorded = if fetched_bytes > 0.0 { bytes as f64 / fetched_bytes } else { 0.0 };
            of_arrived((of_recorded * (2.0 - recorded)).min(1.0) * copied_bytes)
        };
        let sides = inputs.throttles.saturating_add(inputs.bounces).saturating_add(inputs.peer_bounces);
        let populated_blocks = inputs.populated_bytes as f64 / BLOCK_BYTES as f64;
        Self {
            arrived_bytes,
            evicted: of_arrived(inputs.evicted_bytes.max(inputs.induced_eviction_bytes) as f64),
            refetched: came_back(inputs.refetched_bytes),
            cpu_reclaimed: came_back(inputs.cpu_reclaimed_bytes),
            peer_reclaimed: came_back(inputs.peer_reclaimed_bytes),
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
    /// Sentence with `{value}` and `{limit}`.
    sentence: &'static str,
    unit: Unit,
    value: f64,
    limit: Limit,
}

#[derive(Clone, Copy)]
enum Unit {
    Bytes,
    /// Ratio, which may exceed 1.
    Share,
    Number,
}

enum Limit {
    AtLeast(f64),
    Below(f64),
}

impl Unit {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and is not negative")]
    fn text(self, value: f64) -> String {
        match self {
            Self::Bytes => text::bytes(value as u64),
            Self::Share => text::percent(value),
            Self::Number if value.fract() == 0.0 || value >= 1000.0 => text::count(value as u64),
            Self::Number => format!("{value:.1}"),
        }
    }
}

impl Condition {
    fn threshold(&self, is_lenient: bool) -> f64 {
        let slack = if is_lenient { 1.0 - LENIENCY } else { 0.0 };
        match self.limit {
            Limit::AtLeast(limit) => limit * (1.0 - slack),
            Limit::Below(limit) => limit * (1.0 + slack),
        }
    }

    fn is_met(&self, is_lenient: bool) -> bool {
        let threshold = self.threshold(is_lenient);
        match self.limit {
            Limit::AtLeast(_) => self.value >= threshold,
            Limit::Below(_) => self.value < threshold,
        }
    }

    fn check(self, is_lenient: bool) -> Check {
        let (threshold, met) = (self.threshold(is_lenient), self.is_met(is_lenient));
        let Self { name, sentence, unit, value, .. } = self;
        let description = sentence.replace("{value}", &unit.text(value)).replace("{limit}", &unit.text(threshold));
        Check { description, name, value, threshold, met }
    }
}

/// Conditions of a ping-pong between GPUs.
fn between_gpus(inputs: &Inputs, shares: &Shares) -> Vec<Condition> {
    vec![
        Condition {
            name: "peer_bounces",
            sentence: "the GPU took blocks from other GPUs {value} times (limit {limit})",
            unit: Unit::Number,
            value: inputs.peer_bounces as f64,
            limit: Limit::AtLeast(THRESHOLDS.bounces),
        },
        Condition {
            name: "peer_reclaimed_ratio",
            sentence: "{value} of arriving bytes had been taken by other GPUs (limit {limit})",
            unit: Unit::Share,
            value: shares.peer_reclaimed,
            limit: Limit::AtLeast(THRESHOLDS.share),
        },
    ]
}

fn conditions(kind: VerdictKind, inputs: &Inputs, shares: &Shares) -> impl Iterator<Item = Condition> {
    use Limit::{AtLeast, Below};
    let limits = &THRESHOLDS;
    let condition = |name, sentence, unit, value, limit| Condition { name, sentence, unit, value, limit };
    let share = |name, sentence, value, limit| condition(name, sentence, Unit::Share, value, limit);
    let number = |name, sentence, value, limit| condition(name, sentence, Unit::Number, value, limit);
    let arrived = || {
        let sentence = "{value} were fetched or populated (limit {limit})";
        condition("arrived_bytes", sentence, Unit::Bytes, shares.arrived_bytes, AtLeast(limits.arrived_bytes))
    };
    let recorded = || {
        let sentence = "{value} of fetched bytes have block records (limit {limit})";
        share("recorded_ratio", sentence, shares.recorded, AtLeast(limits.recorded_ratio))
    };
    let evicted = |limit| {
        let sentence = match limit {
            AtLeast(_) => "evicted bytes, from or for the process, are {value} of arriving bytes (limit {limit})",
            Below(_) => "evicted bytes, from or for the process, are {value} of arriving bytes (upper limit {limit})",
        };
        share("eviction_ratio", sentence, shares.evicted, limit)
    };
    let refetched = |limit| {
        let sentence = match limit {
            AtLeast(_) => "{value} of arriving bytes were refetched (limit {limit})",
            Below(_) => "{value} of arriving bytes were refetched (upper limit {limit})",
        };
        share("refetch_ratio", sentence, shares.refetched, limit)
    };
    match kind {
        VerdictKind::DriverThrottling => vec![
            number(
                "throttles",
                "the driver throttled processors {value} times (limit {limit})",
                inputs.throttles as f64,
                AtLeast(limits.throttles),
            ),
            share(
                "throttle_ratio",
                "{value} of throttles and bounces are throttles (limit {limit})",
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
            share(
                "refetched_to_cpu_reclaimed",
                "{value} of arriving bytes were refetched after evictions (limit {limit}, the share after CPU faults)",
                shares.refetched,
                AtLeast(shares.cpu_reclaimed),
            ),
        ],
        VerdictKind::PingPong if inputs.is_between_gpus() => between_gpus(inputs, shares),
        VerdictKind::PingPong => vec![
            number(
                "bounces",
                "blocks bounced between CPU and GPU {value} times (limit {limit})",
                inputs.bounces as f64,
                AtLeast(limits.bounces),
            ),
            share(
                "cpu_reclaimed_ratio",
                "{value} of arriving bytes had been reclaimed by the CPU (limit {limit})",
                shares.cpu_reclaimed,
                AtLeast(limits.share),
            ),
            share(
                "readback_ratio",
                "bytes read back to the host without eviction are {value} of arriving bytes (limit {limit})",
                shares.readback,
                AtLeast(limits.share),
            ),
        ],
        VerdictKind::Streaming => {
            vec![arrived(), recorded(), evicted(AtLeast(limits.share)), refetched(Below(limits.share))]
        }
        VerdictKind::FirstTouchStorm => vec![
            arrived(),
            share(
                "populated_ratio",
                "{value} of arriving bytes were populated (limit {limit})",
                shares.populated,
                AtLeast(limits.populated_ratio),
            ),
            evicted(Below(limits.share)),
            number(
                "faults_per_populated_block",
                "{value} GPU faults for each 2 MiB populated (limit {limit})",
                shares.faults_per_populated_block,
                AtLeast(limits.faults_per_populated_block),
            ),
        ],
    }
    .into_iter()
}
