//! Disagreements of the sources since the driver was loaded.

use std::collections::BTreeMap;

use model::{CheckedFigure, Degradation, DegradedReason};

use super::{Target, bounds::Bounds};

/// Disagreements about a figure from which it is not trusted. Fewer are a warning.
const UNTRUSTED_FROM: u64 = 3;

/// Disagreements by figure: their number, and the last one.
#[derive(Debug, Default)]
pub(super) struct Disagreements(BTreeMap<CheckedFigure, Disagreement>);

#[derive(Debug)]
struct Disagreement {
    number: u64,
    target: Target,
    last: Bounds,
}

impl Disagreements {
    pub(super) fn add(&mut self, figure: CheckedFigure, target: Target, last: Bounds) {
        let number = self.0.get(&figure).map_or(0, |earlier| earlier.number).saturating_add(1);
        let disagreement = Disagreement { number, target, last };
        tracing::warn!("{}", disagreement.description(figure));
        self.0.insert(figure, disagreement);
    }

    /// Sentences about figures with few disagreements.
    pub(super) fn warnings(&self) -> impl Iterator<Item = String> + '_ {
        let few = self.0.iter().filter(|(_, each)| each.number < UNTRUSTED_FROM);
        few.map(|(figure, each)| each.description(*figure))
    }

    /// Figures that are not trusted.
    pub(super) fn degradations(&self) -> impl Iterator<Item = Degradation> + '_ {
        let lasting = self.0.iter().filter(|(_, each)| each.number >= UNTRUSTED_FROM);
        lasting.map(|(figure, each)| Degradation {
            reason: DegradedReason::SourcesDisagree,
            uid: Some(each.target.uid),
            user: None,
            pid: Some(each.target.process.pid),
            description: each.description(*figure),
        })
    }
}

impl Disagreement {
    fn description(&self, figure: CheckedFigure) -> String {
        let Self { number, target, last: Bounds { min, probes, max } } = self;
        let driver = if min == max { min.to_string() } else { format!("{min} to {max}") };
        format!(
            "cross-check of process {}: the probes counted {probes} {}, the driver {driver} (`{}`; disagreements: {number})",
            target.process.pid,
            figure.label(),
            figure.name(),
        )
    }
}
