//! Candidates: proposals of live policies, with their admission by the guard.

use model::Proposal;

use super::live_policy::Running;
use crate::act::guard::Admission;

/// Proposal that may be tried.
pub(crate) struct Candidate {
    pub(crate) proposal: Proposal,
    pub(crate) running: Box<dyn Running>,
    pub(crate) admission: Admission,
}
