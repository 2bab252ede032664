//! Plans that policies propose.

use model::Plan;

use super::{guard::Admission, live_policy::Running};

/// Plan to be tried.
pub(crate) struct Proposal {
    pub(crate) plan: Plan,
    pub(crate) running: Box<dyn Running>,
    pub(crate) admission: Admission,
}
