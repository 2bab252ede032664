//! All policies, and which of them is tried.

use std::collections::BTreeMap;

use model::{
    Plan,
    api::rule::{self, one_of},
};

use super::{
    auto_live, controls,
    cycle::Cycle,
    guard::Admission,
    hot_cold::HotCold,
    parameter::Parameter,
    pingpong::PingPong,
    proposal::Proposal,
    reactor::{Reactor, View},
    stream::Stream,
    tenants::Tenants,
};

/// Those that `auto-live` chooses from.
const REACTORS: &[&dyn Reactor] = &[&PingPong, &Tenants, &HotCold, &Cycle, &Stream];
/// Those that are there to be shown to be bad, and the one that does nothing: only for who names them.
const NAMED_ONLY: &[&dyn Reactor] =
    &[&controls::Observe, &controls::PinHost, &controls::PrefetchAll, &controls::Harmful];

/// What can be named in an override.
pub fn policies() -> impl Iterator<Item = &'static str> {
    let named = REACTORS.iter().chain(NAMED_ONLY).map(|reactor| reactor.name());
    [auto_live::NAME].into_iter().chain(named)
}

/// What an override can tell the policy of this name.
pub fn parameters(policy: &str) -> impl Iterator<Item = &'static Parameter> {
    meant(policy).flat_map(Reactor::parameters)
}

/// The policy of this name, or all that `auto-live` chooses from.
pub(crate) fn meant(policy: &str) -> impl Iterator<Item = &'static dyn Reactor> {
    let chooses = policy == auto_live::NAME;
    let chosen = REACTORS.iter().filter(move |reactor| chooses || reactor.name() == policy);
    let named = NAMED_ONLY.iter().filter(move |reactor| reactor.name() == policy);
    chosen.chain(named).copied()
}

/// What the policy of this name proposes, or all that `auto-live` chooses from, but for what rests.
pub(crate) fn proposals(
    policy: &str,
    view: &View<'_>,
    rests: impl Fn(&str) -> bool,
    admits: impl Fn(&Plan) -> Admission,
) -> impl Iterator<Item = Proposal> {
    meant(policy).filter(move |reactor| !rests(reactor.name())).filter_map(move |reactor| {
        let (plan, running) = reactor.propose(view)?;
        let is_here = plan.process == view.process.id && plan.gpu == view.gpu;
        is_here.then(|| Proposal { admission: admits(&plan), plan, running })
    })
}

/// Whether the policy of this name takes these parameters. `auto-live` takes those of all that it chooses from: each of them takes its own.
///
/// # Errors
/// The first that it does not take, or whose value means nothing to it.
pub fn check(policy: &str, given: &BTreeMap<String, String>) -> Result<(), rule::Invalid> {
    let taken: Vec<&Parameter> = parameters(policy).collect();
    for (name, value) in given {
        let Some(parameter) = taken.iter().find(|each| each.name == name) else {
            let mut names: Vec<&str> = taken.iter().map(|each| each.name).collect();
            names.sort_unstable();
            names.dedup();
            let known = if names.is_empty() { "no parameters".to_owned() } else { one_of(&names) };
            return Err(invalid(name, format!("{policy} takes {known}, not {name:?}")));
        };
        if !parameter.form.takes(value) {
            return Err(invalid(name, format!("expected {}, not {value:?}", parameter.form)));
        }
    }
    Ok(())
}

fn invalid(name: &str, detail: String) -> rule::Invalid {
    // What is no name cannot be pointed at.
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    let field = if is_name { format!("parameters.{name}").into() } else { "parameters".into() };
    rule::Invalid { field, detail }
}
