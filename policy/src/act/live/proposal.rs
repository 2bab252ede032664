//! Proposals of live policies.

use model::Plan;

use super::live_policy::Running;
use crate::act::guard::Admission;

/// Proposal to be tried, with its admission by the guard.
pub(crate) struct Proposal {
    pub(crate) plan: Plan,
    pub(crate) running: Box<dyn Running>,
    pub(crate) admission: Admission,
}
