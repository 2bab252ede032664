//! Lock of the state folder: two uvmds would withdraw each other's advice and overwrite each
//! other's overrides.

use std::path::Path;

use anyhow::{Context, bail};
use sys::private::{self, Lock};
use web::{Warning, Warnings};

/// Locks the state folder, which is created if missing, for as long as the result lives. If uvmd
/// may not act, it continues without a usable folder: nothing is persistent then.
///
/// # Errors
/// If another uvmd has the lock, or the folder is unusable and uvmd may act.
pub(crate) fn lock(state_dir: &Path, may_act: bool, warnings: &Warnings) -> anyhow::Result<Option<Lock>> {
    let locked = private::make_folder(state_dir).and_then(|()| private::lock(&state_dir.join("uvmd.lock")));
    let unusable = match locked {
        Ok(Some(lock)) => return Ok(Some(lock)),
        Ok(None) => bail!(
            "another uvmd keeps its state in {}: stop it, or choose another folder by policy.state_dir",
            state_dir.display()
        ),
        Err(error) => format!("policy.state_dir: {} cannot be used: {}", state_dir.display(), sys::reason(&error)),
    };
    if may_act {
        return Err(anyhow::Error::msg(unusable)).context("uvmd may act, and has no folder for its journal");
    }
    let message = format!("{unusable}; no state is saved");
    tracing::warn!("{message}");
    warnings.raise(Warning::StateUnavailable, message);
    Ok(None)
}
