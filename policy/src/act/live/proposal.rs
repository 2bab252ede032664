//! Plans that policies propose.

use model::Plan;

use super::live_policy::Running;
use crate::act::guard::Admission;

/// Plan to be tried.
pub(crate) struct Proposal {
    pub(crate) plan: Plan,
    pub(crate) running: Box<dyn Running>,
    pub(crate) admission: Admission,
}
