//! Overrides for one process. An id alone matches any process that has it, later or after the next
//! boot. Overrides of the API therefore apply to the process that had the id at their creation, and
//! end with it.

use model::{Override, api::rule};
use serde::{Deserialize, Serialize};
use sys::{Roots, kernel, processes};
use web::ChangeError;

use super::Expired;
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
                if let Err(error) = rule::check_parameters(&rule.policy, &rule.parameters) {
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
pub(super) fn to_process(rule: &Override) -> Result<Override, ChangeError> {
    let mut rule = rule.clone();
    let Some(pid) = rule.selector.pid else { return Ok(rule) };
    let refused = |why: String| Err(ChangeError::NoProcess(why));
    match (processes::start_ticks(&Roots::default(), pid), rule.selector.start_ticks) {
        (Ok(None), _) => refused(format!("there is no process {pid}")),
        (Ok(Some(start)), Some(expected)) if start != expected => {
            refused(format!("that process {pid} has exited; the one with the id now started at tick {start}"))
        }
        (Ok(Some(start)), _) => {
            rule.selector.start_ticks = Some(start);
            Ok(rule)
        }
        (Err(error), _) => refused(format!("the process {pid} cannot be read: {}", sys::reason(&error))),
    }
}

/// Whether the override's process has exited. An unreadable process may be alive.
pub(super) fn has_ended(rule: &Override) -> bool {
    let (Some(pid), Some(expected)) = (rule.selector.pid, rule.selector.start_ticks) else { return false };
    processes::start_ticks(&Roots::default(), pid).is_ok_and(|start| start != Some(expected))
}

/// Id of this boot; `None` if unknown.
fn this_boot() -> Option<String> {
    kernel::boot_id(&Roots::default()).ok()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, id};

    use model::{Budget, Mode, Selector};

    use super::*;

    fn of(pid: u32, start_ticks: Option<u64>) -> Override {
        Override {
            id: "mine".to_owned(),
            selector: Selector { pid: Some(pid), start_ticks, ..Selector::default() },
            mode: Mode::Act,
            policy: "cycle".to_owned(),
            parameters: [].into(),
            budget: Budget::default(),
            priority: 0,
            expires_at: None,
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
    fn override_applies_to_the_current_process_of_the_id_only() {
        let start = processes::start_ticks(&Roots::default(), id()).unwrap();
        let rule = to_process(&of(id(), None)).unwrap();
        assert_eq!(rule, of(id(), start));
        assert_eq!(to_process(&rule).unwrap(), rule);
        assert!(!has_ended(&rule));
        let earlier = of(id(), start.map(|ticks| ticks - 1));
        assert!(has_ended(&earlier));
        let Err(ChangeError::NoProcess(why)) = to_process(&earlier) else { panic!("another has its id") };
        assert!(why.contains("has exited; the one with the id now started at tick"), "{why}");
        let everybody = Override { selector: Selector::default(), ..of(1, None) };
        assert_eq!(to_process(&everybody).unwrap(), everybody);
    }

    #[test]
    fn override_for_a_missing_process_is_rejected() {
        let child = sleeping();
        let pid = child.id();
        end(child);
        assert_eq!(to_process(&of(pid, None)), Err(ChangeError::NoProcess(format!("there is no process {pid}"))));
    }

    #[test]
    fn stored_override_for_a_process_ends_with_it_and_with_its_boot() {
        let folder = tempfile::tempdir().unwrap();
        let state_file = StateFile::new(folder.path(), "overrides.json");
        let child = sleeping();
        let (living, ending) = (to_process(&of(id(), None)).unwrap(), to_process(&of(child.id(), None)).unwrap());
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
