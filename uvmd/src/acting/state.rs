//! State that outlives the loop: the journal of advice.

use std::path::Path;

use actuator::{Journal, Leftover};
use anyhow::anyhow;
use model::{Action, DecisionId, Step};
use policy::act::InForce;
use sys::{Roots, private};

/// File name of the journal in the state folder.
pub(crate) const JOURNAL_FILE: &str = "advice.journal";

/// Opens the journal if advice may be given now, or may have been given by a former run with more
/// permissions. If none may be given, an unreadable journal does not prevent monitoring.
pub(super) fn open_journal(enabled: bool, state_dir: &Path) -> anyhow::Result<Option<Journal>> {
    let file = state_dir.join(JOURNAL_FILE);
    if !enabled && !file.exists() {
        return Ok(None);
    }
    let opened = make_folder(state_dir).and_then(|()| Ok(Journal::open(&file, Roots::default())?));
    match opened {
        Err(error) if !enabled => {
            tracing::warn!("advice of the former run is not withdrawn: {error:#}");
            Ok(None)
        }
        opened => opened.map(Some),
    }
}

/// Creates the folder for uvmd's user alone.
fn make_folder(folder: &Path) -> anyhow::Result<()> {
    private::make_folder(folder)
        .map_err(|error| anyhow!("no state can be saved in {}: {}", folder.display(), sys::reason(&error)))
}

/// Advice in force by the journal, whose steps are withdrawals.
pub(super) fn in_force((Leftover { process, gpu, steps }, number): (Leftover, u64)) -> InForce {
    let gave = |step: Step| match step.action {
        Action::Withdraw(advice) => Step { action: Action::Advise(advice), ..step },
        _ => step,
    };
    InForce { decision: DecisionId(number), process, gpu, steps: steps.into_iter().map(gave).collect() }
}
