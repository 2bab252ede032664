//! A second uvmd beside the first, which counts by the driver's tools: compared with the truth as the
//! first one is, and with the first one.

use serde::Serialize;

use crate::figures::{Comparison, Figures, Scope, Truth, compare, compare_sources};

/// Comparisons of the uvmd that counts by the driver's tools.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Second {
    /// With the truth.
    pub(crate) comparison: Vec<Comparison>,
    /// With the uvmd that counts by probes, whose figures are those called truth here.
    pub(crate) with_probes: Vec<Comparison>,
}

impl Second {
    /// Compares the figures of a scope. `truth`: `None` where the pass has none.
    pub(crate) fn add(&mut self, name: &str, scope: Scope, truth: Option<&Truth>, probes: &Figures, tools: &Figures) {
        if let Some(truth) = truth {
            let mut truth = truth.clone();
            truth.waive_uncounted(tools);
            self.comparison.extend(compare(name, scope, &truth, tools));
        }
        self.with_probes.extend(compare_sources(name, probes, tools));
    }

    /// Whether every comparison holds.
    pub(crate) fn holds(&self) -> bool {
        self.comparison.iter().chain(&self.with_probes).all(|compared| compared.holds)
    }
}
