//! Implementations of the policies in the registry, and proposals of those selected.

use model::{
    Proposal,
    policy::{CHOOSER, Choice, POLICIES},
};

use super::{
    candidate::Candidate,
    live_policy::{LivePolicy, Named, View},
};
use crate::act::guard::Admission;

macro_rules! implementations {
    ($($group:ident { $($name:literal, [$($implementation:path)?], $choice:ident, $promise:tt, $actions:tt, $parameters:tt, $help:literal;)* })*) => {
        /// Implementations by name, in the order of the registry. The chooser has none.
        const IMPLEMENTATIONS: &[(&str, &dyn LivePolicy)] = &[$($($(($name, &$implementation),)?)*)*];

        $($($(
            impl Named for $implementation {
                fn name(&self) -> &'static str {
                    $name
                }
            }
        )?)*)*
    };
}

model::live_policies!(implementations);

/// Policies that this name selects: the policy itself, or all candidates of the chooser.
pub(crate) fn selected(policy: &str) -> impl Iterator<Item = &'static dyn LivePolicy> {
    let is_selected = move |name: &str| {
        let choice = POLICIES.iter().find(|each| each.name == name).map(|each| each.choice);
        name == policy || (policy == CHOOSER && choice == Some(Choice::Automatic))
    };
    IMPLEMENTATIONS.iter().filter(move |(name, _)| is_selected(name)).map(|(_, implementation)| *implementation)
}

/// Candidates of the selected policies, except those in cool-down.
pub(crate) fn candidates(
    policy: &str,
    view: &View<'_>,
    is_cooling_down: impl Fn(&str) -> bool,
    admission: impl Fn(&Proposal) -> Admission,
) -> impl Iterator<Item = Candidate> {
    selected(policy).filter(move |policy| !is_cooling_down(policy.name())).filter_map(move |policy| {
        let (proposal, running) = policy.propose(view)?;
        let is_here = proposal.process == view.process.id && proposal.gpu == view.gpu;
        is_here.then(|| Candidate { admission: admission(&proposal), proposal, running })
    })
}
