//! Overrides of the API on the disk, and the processes that they are for.

use api::rule;
use model::Override;
use policy::rules::{self, Expired, NoProcess};
use serde::{Deserialize, Serialize};
use sys::{Roots, kernel, processes};

use crate::state_file::StateFile;

/// Stored overrides of the API.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    /// Boot of the processes that they name.
    boot_id: Option<String>,
    overrides: Vec<rule::Override>,
    #[serde(default)]
    expired_of_file: Expired,
}

/// Stored overrides of this text that still match a process, and the expired ones of the file.
pub(super) fn parse(state_file: &StateFile, text: &[u8]) -> anyhow::Result<(Vec<Override>, Expired)> {
    let Stored { boot_id, overrides, expired_of_file } = state_file.parse(text)?;
    let is_of_this_boot = boot_id.is_some() && boot_id == this_boot();
    let mut known = Vec::with_capacity(overrides.len());
    for given in overrides {
        let rule = Override::try_from(given)?;
        match rule.selector.pid {
            Some(pid) if !is_of_this_boot || has_ended(&rule) => {
                tracing::info!("override {} is deleted: its process {pid} has exited", rule.id);
            }
            _ => {
                // Accepted by another version: its other fields apply.
                let matchable = rule::check_matchable(&rule.selector);
                if let Err(error) = matchable.and_then(|()| rule::check_parameters(&rule.policy, &rule.parameters)) {
                    tracing::warn!("override {}: {error}", rule.id);
                }
                known.push(rule);
            }
        }
    }
    Ok((known, expired_of_file))
}

/// Stores both.
pub(super) fn write(state_file: &StateFile, overrides: &[Override], expired_of_file: &Expired) -> anyhow::Result<()> {
    let overrides = overrides.iter().map(rule::Override::from).collect();
    state_file.write(&Stored { boot_id: this_boot(), overrides, expired_of_file: expired_of_file.clone() })
}

/// Override bound to the process that has its id now, if it has one.
pub(super) fn bind(rule: &Override) -> Result<Override, NoProcess> {
    let start_ticks = |pid| processes::start_ticks(&Roots::default(), pid).map_err(|error| sys::reason(&error));
    rules::bind(rule, start_ticks)
}

/// Whether the override's process has exited.
pub(super) fn has_ended(rule: &Override) -> bool {
    rules::has_ended(rule, |pid| processes::start_ticks(&Roots::default(), pid))
}

/// Id of this boot; `None` if unknown.
fn this_boot() -> Option<String> {
    kernel::boot_id(&Roots::default()).ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, id};

    use model::{Mode, Selector};

    use super::*;

    fn of(pid: u32, start_ticks: Option<u64>) -> Override {
        Override {
            selector: Selector { pid: Some(pid), start_ticks, ..Selector::default() },
            ..Override::new("mine", Mode::Act, "cycle")
        }
    }

    fn read(state_file: &StateFile) -> anyhow::Result<Vec<Override>> {
        parse(state_file, &state_file.text()?.unwrap()).map(|(overrides, _)| overrides)
    }

    fn sleeping() -> Child {
        Command::new("sleep").arg("60").spawn().unwrap()
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn stored_override_for_a_process_ends_with_it_and_with_its_boot() {
        let folder = tempfile::tempdir().unwrap();
        let state_file = StateFile::new(folder.path(), "overrides.json");
        let child = sleeping();
        let (living, ending) = (bind(&of(id(), None)).unwrap(), bind(&of(child.id(), None)).unwrap());
        write(&state_file, &[living.clone(), ending.clone()], &Expired::new()).unwrap();
        assert_eq!(read(&state_file).unwrap(), [living.clone(), ending]);
        end(child);
        assert_eq!(read(&state_file).unwrap(), std::slice::from_ref(&living));
        // After the next boot, the same id and start time belong to another process.
        let overrides = vec![rule::Override::from(&living)];
        state_file
            .write(&Stored { boot_id: Some("another".to_owned()), overrides, expired_of_file: Expired::new() })
            .unwrap();
        assert_eq!(read(&state_file).unwrap(), []);
    }
}
