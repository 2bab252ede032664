//! Options of uvmd in a run.

use std::{fs, path::Path};

use anyhow::Context;
use model::policy::{Choice, POLICIES};

/// Name of the driver alone: uvmd only observes.
pub(super) const DRIVER: &str = "driver";
/// Name of the control policy that uvmd must roll back.
pub(super) const HARMFUL: &str = "harmful";

/// Names of the policies except controls and the one that does nothing, which equals the driver
/// alone.
fn policies() -> impl Iterator<Item = &'static str> {
    let is_compared = |choice| matches!(choice, Choice::Chooser | Choice::Automatic);
    POLICIES.iter().filter(move |policy| is_compared(policy.choice)).map(|policy| policy.name)
}

/// Names of the control policies that must miss a target on a scenario. Plans are not compared: no
/// scenario has the helper in it.
pub(super) fn control_policies() -> impl Iterator<Item = &'static str> {
    POLICIES
        .iter()
        .filter(|policy| policy.choice == Choice::Control && policy.promise.is_none())
        .map(|policy| policy.name)
        .filter(|name| *name != HARMFUL)
}

/// Folder of a run's uvmd.
const STATE: &str = "/run/compare";

/// Check the name of a policy.
pub(super) fn parse(name: &str) -> Result<String, String> {
    let known = || [DRIVER].into_iter().chain(policies()).chain(control_policies()).chain([HARMFUL]);
    if known().any(|policy| policy == name) {
        return Ok(name.to_owned());
    }
    Err(format!("{name:?} is not a policy; the policies are {}", known().collect::<Vec<_>>().join(", ")))
}

/// Whether uvmd acts under this policy.
pub(super) fn acts(policy: &str) -> bool {
    policy != DRIVER
}

/// Options of uvmd, including those of the plan. Deletes the state of an earlier uvmd.
pub(crate) fn options(policy: &str, common: &[String]) -> anyhow::Result<Vec<String>> {
    let state = Path::new(STATE);
    // Absent at the first run.
    let _ = fs::remove_dir_all(state);
    fs::create_dir_all(state).context("cannot create a folder for uvmd")?;
    let mut options = common.to_vec();
    if acts(policy) {
        let file = state.join("overrides.toml");
        fs::write(&file, overrides(policy)).context("cannot write the overrides")?;
        for setting in [
            "policy.enabled=true".to_owned(),
            format!("policy.overrides_file={}", file.display()),
            format!("policy.state_dir={}", state.display()),
        ] {
            options.extend(["--set".to_owned(), setting]);
        }
    }
    Ok(options)
}

/// Text of the overrides file, with one override for all processes.
fn overrides(policy: &str) -> String {
    format!("[[override]]\nid = \"compare\"\nmatch = {{}}\nmode = \"act\"\npolicy = \"{policy}\"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_existing_policies_are_accepted() {
        assert_eq!(parse("auto-live"), Ok("auto-live".to_owned()));
        assert!(parse("auto").unwrap_err().contains("pin-host"));
    }

    #[test]
    fn the_override_is_for_all_processes() {
        let parsed: toml::Value = toml::from_str(&overrides("cycle")).unwrap();
        let one = &parsed["override"][0];
        assert_eq!((one["policy"].as_str(), one["mode"].as_str()), (Some("cycle"), Some("act")));
        assert!(one["match"].as_table().unwrap().is_empty());
    }
}
