//! Proposals of live policies.

use model::Proposal;

use super::live_policy::Running;
use crate::act::guard::Admission;

/// Candidate to be tried, with its admission by the guard.
pub(crate) struct Candidate {
    pub(crate) proposal: Proposal,
    pub(crate) running: Box<dyn Running>,
    pub(crate) admission: Admission,
}
