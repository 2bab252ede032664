//! What uvmd is told in a run.

use std::{fs, path::Path};

use anyhow::Context;
use model::policy::{Choice, POLICIES};

/// The driver alone: uvmd watches.
pub(super) const DRIVER: &str = "driver";
/// The control that uvmd must roll back.
pub(super) const HARMFUL: &str = "harmful";

/// Names of the policies that are no controls, without the one that does nothing: the driver alone stands for it.
fn policies() -> impl Iterator<Item = &'static str> {
    let is_compared = |choice| matches!(choice, Choice::Chooser | Choice::Automatic);
    POLICIES.iter().filter(move |policy| is_compared(policy.choice)).map(|policy| policy.name)
}

/// Names of the controls that must miss a target somewhere.
pub(super) fn control_policies() -> impl Iterator<Item = &'static str> {
    POLICIES
        .iter()
        .filter(|policy| policy.choice == Choice::Control)
        .map(|policy| policy.name)
        .filter(|name| *name != HARMFUL)
}

/// Files of one run's uvmd.
const STATE: &str = "/run/compare";

/// A name as it is given.
pub(super) fn parse(name: &str) -> Result<String, String> {
    let known = || [DRIVER].into_iter().chain(policies()).chain(control_policies()).chain([HARMFUL]);
    if known().any(|policy| policy == name) {
        return Ok(name.to_owned());
    }
    Err(format!("{name:?} is no policy: one of {} is", known().collect::<Vec<_>>().join(", ")))
}

/// Whether uvmd does anything.
pub(super) fn acts(policy: &str) -> bool {
    policy != DRIVER
}

/// uvmd's options, those of the plan among them. What an earlier uvmd kept is forgotten.
pub(crate) fn options(policy: &str, common: &[String]) -> anyhow::Result<Vec<String>> {
    let state = Path::new(STATE);
    // Not there the first time.
    let _ = fs::remove_dir_all(state);
    fs::create_dir_all(state).context("cannot make a folder for uvmd")?;
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

/// For everybody.
fn overrides(policy: &str) -> String {
    format!("[[override]]\nid = \"compare\"\nmatch = {{}}\nmode = \"act\"\npolicy = \"{policy}\"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_policies_that_exist_are_taken() {
        assert_eq!(parse("auto-live"), Ok("auto-live".to_owned()));
        assert!(parse("auto").unwrap_err().contains("pin-host"));
    }

    #[test]
    fn an_override_is_for_everybody() {
        let parsed: toml::Value = toml::from_str(&overrides("cycle")).unwrap();
        let one = &parsed["override"][0];
        assert_eq!((one["policy"].as_str(), one["mode"].as_str()), (Some("cycle"), Some("act")));
        assert!(one["match"].as_table().unwrap().is_empty());
    }
}
