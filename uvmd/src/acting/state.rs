//! What outlives the loop: the journal of the advice that is in force, and the audit log.

use std::{fs::DirBuilder, os::unix::fs::DirBuilderExt, path::Path, time::SystemTime};

use actuator::{Journal, Leftover};
use anyhow::Context;
use model::{Action, DecisionId, Step};
use policy::act::InForce;
use sys::Roots;

use super::Parts;
use crate::audit::Audit;

/// The journal, where advice may be given now or may have been by a former run, which may have been allowed more.
pub(super) fn open_journal(Parts { enabled, state_dir, .. }: &Parts) -> anyhow::Result<Option<Journal>> {
    let file = state_dir.join("advice.journal");
    if !enabled && !file.exists() {
        return Ok(None);
    }
    make_folder(state_dir)?;
    Ok(Some(Journal::open(file, Roots::default())?))
}

/// The audit log, in the folder of the state or elsewhere.
pub(super) fn open_audit(Parts { state_dir, audit_log, rotation, .. }: &Parts) -> anyhow::Result<Audit> {
    if audit_log.starts_with(state_dir) {
        make_folder(state_dir)?;
    }
    Audit::start(audit_log, *rotation)
}

/// For uvmd's own user alone.
fn make_folder(folder: &Path) -> anyhow::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .with_context(|| format!("cannot make {}", folder.display()))
}

/// What the journal has is what takes advice back; what gave it is what is in force.
pub(super) fn in_force((Leftover { process, gpu, steps }, number): (Leftover, u64)) -> InForce {
    let gave = |step: Step| match step.action {
        Action::Withdraw(advice) => Step { action: Action::Advise(advice), ..step },
        _ => step,
    };
    InForce { decision: DecisionId(number), process, gpu, steps: steps.into_iter().map(gave).collect() }
}

/// Names of decisions follow this one: the second in which the service started, so that those of two runs differ.
pub(super) fn first_decision() -> DecisionId {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    DecisionId(since_epoch.as_secs())
}
