//! `auto-live`: of all that is proposed, what may be done and is expected to save most. What was undone rests by its own name, so the next best
//! is tried then.

use model::decision::Measured;

use super::{
    catalogue::Proposal,
    guard::Admission,
    limits::{BATCH_SECONDS, LINK_BYTES_PER_SECOND},
};

/// Its name.
pub(crate) const NAME: &str = "auto-live";

/// The best of these.
pub(crate) fn best(proposals: Vec<Proposal>, before: &Measured) -> Option<Proposal> {
    let rank = |proposal: &Proposal| match proposal.admission {
        Admission::Act => 2,
        Admission::Shadow(_) => 1,
        Admission::Refused(_) => 0,
    };
    let saved = |proposal: &Proposal| saved_seconds(proposal, before);
    proposals.into_iter().max_by(|one, other| rank(one).cmp(&rank(other)).then(saved(one).total_cmp(&saved(other))))
}

/// What a window like the last one would take less, at the least, modelled: bytes by what a link moves, batches of faults by how long one is served.
fn saved_seconds(proposal: &Proposal, before: &Measured) -> f64 {
    let copied = before.inputs.bytes_htod.saturating_add(before.inputs.bytes_dtoh) as f64;
    let expected = &proposal.plan.expected;
    expected.link_bytes_saved.at_least * copied / LINK_BYTES_PER_SECOND
        + expected.faults_saved.at_least * before.replays as f64 * BATCH_SECONDS
}
