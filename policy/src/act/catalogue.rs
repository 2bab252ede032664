//! All policies, and which of them is tried.

use model::Plan;

use super::{
    auto_live, controls,
    cycle::Cycle,
    guard::Admission,
    hot_cold::HotCold,
    parameter::Parameter,
    pingpong::PingPong,
    reactor::{Reactor, Running, View},
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

/// What is to be tried.
pub(crate) struct Proposal {
    pub(crate) plan: Plan,
    pub(crate) running: Box<dyn Running>,
    pub(crate) admission: Admission,
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
