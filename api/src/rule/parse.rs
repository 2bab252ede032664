//! Overrides of the API to those of the model, and back.

use std::{borrow::Cow, fmt, time::SystemTime};

use model::{
    Budget, Mode, Selector, rule,
    text::{parse_time, time},
};

use super::Override;

/// A text that is compared is no longer.
const TEXT_MAX_BYTES: usize = 4096;
/// Maximum bytes of an id.
pub const ID_MAX_BYTES: usize = 64;
const PARAMETERS_MAX: usize = 16;

/// Path of a field of an override: `match.range.end`.
pub type Field = Cow<'static, str>;

/// Error of an invalid override.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Where.
    pub field: Field,
    /// The error, and the expected form.
    pub detail: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, detail } = self;
        write!(f, "{field}: {detail}")
    }
}

impl std::error::Error for Invalid {}

pub(super) fn invalid(field: &'static str, detail: impl Into<String>) -> Invalid {
    Invalid { field: field.into(), detail: detail.into() }
}

impl TryFrom<Override> for rule::Override {
    type Error = Invalid;

    fn try_from(given: Override) -> Result<Self, Invalid> {
        let Override { id, selector, mode, policy, parameters, budget, priority, expires_at } = given;
        let id = id.ok_or_else(|| invalid("id", "an override needs a name"))?;
        let is_id = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if id.is_empty() || id.len() > ID_MAX_BYTES || !id.chars().all(is_id) || id.starts_with('.') {
            return Err(invalid(
                "id",
                format!(
                    "expected 1 to {ID_MAX_BYTES} letters, digits, \".\", \"_\" and \"-\", the first no \".\", not {id:?}"
                ),
            ));
        }
        let mode = Mode::ALL
            .into_iter()
            .find(|known| known.name() == mode)
            .ok_or_else(|| invalid("mode", format!("expected {}, not {mode:?}", one_of(&Mode::ALL.map(Mode::name)))))?;
        let policy = policy.unwrap_or_else(|| model::policy::CHOOSER.to_owned());
        if model::policy::named(&policy).is_none() {
            return Err(invalid("policy", format!("expected {}, not {policy:?}", model::policy::NAMES)));
        }
        if parameters.len() > PARAMETERS_MAX {
            return Err(invalid("parameters", format!("expected at most {PARAMETERS_MAX}")));
        }
        for (name, value) in &parameters {
            if name.is_empty() || name.len() > ID_MAX_BYTES || value.len() > TEXT_MAX_BYTES {
                return Err(invalid("parameters", format!("{name:?} or its value is too long, or empty")));
            }
        }
        let expires_at = expires_at.map(|text| parse_time(&text)).transpose();
        let expires_at = expires_at.map_err(|error| invalid("expires_at", error.to_string()))?;
        Ok(Self {
            id,
            selector: checked_selector(selector)?,
            mode,
            policy,
            parameters,
            budget: checked_budget(budget)?,
            priority,
            expires_at,
        })
    }
}

fn checked_selector(selector: Selector) -> Result<Selector, Invalid> {
    let Selector {
        pid,
        start_ticks,
        executable,
        uid: _,
        cgroup,
        container,
        pod,
        job,
        range,
        allocation_larger_than_bytes: _,
    } = &selector;
    if *pid == Some(0) {
        return Err(invalid("match.pid", "no process has the id 0"));
    }
    if start_ticks.is_some() && pid.is_none() {
        return Err(invalid("match.start_ticks", "expected together with match.pid"));
    }
    for (field, text) in [
        ("match.executable", executable),
        ("match.cgroup", cgroup),
        ("match.container", container),
        ("match.pod", pod),
        ("match.job", job),
    ] {
        if text.as_ref().is_some_and(|text| text.is_empty() || text.len() > TEXT_MAX_BYTES) {
            return Err(invalid(field, format!("expected a text of 1 to {TEXT_MAX_BYTES} bytes")));
        }
    }
    if cgroup.as_ref().is_some_and(|path| !path.starts_with(['/', '*'])) {
        return Err(invalid("match.cgroup", "expected a path from the root of cgroups, such as \"/kubepods.slice\""));
    }
    if range.is_some_and(|range| range.begin >= range.end) {
        return Err(invalid("match.range.end", "expected an address behind the range's first"));
    }
    Ok(selector)
}

fn checked_budget(budget: Budget) -> Result<Budget, Invalid> {
    let Budget { bytes_per_second, bytes } = budget;
    for (field, bytes) in [("budget.bytes_per_second", bytes_per_second), ("budget.bytes", bytes)] {
        if bytes == Some(0) {
            return Err(invalid(field, "expected more than 0; mode = \"observe\" moves nothing"));
        }
    }
    Ok(budget)
}

/// `"a", "b" or "c"`
#[must_use]
pub fn one_of(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    match quoted.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => quoted.concat(),
    }
}

impl From<&rule::Override> for Override {
    fn from(known: &rule::Override) -> Self {
        Self {
            id: Some(known.id.clone()),
            selector: known.selector.clone(),
            mode: known.mode.name().to_owned(),
            policy: Some(known.policy.clone()),
            parameters: known.parameters.clone(),
            budget: known.budget,
            priority: known.priority,
            expires_at: known.expires_at.map(|at: SystemTime| time(at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given() -> Override {
        Override { id: Some("llm".to_owned()), mode: "act".to_owned(), ..Override::default() }
    }

    fn field_of(given: Override) -> Field {
        rule::Override::try_from(given).unwrap_err().field
    }

    #[test]
    fn what_is_written_out_reads_back_the_same() {
        let given = Override {
            selector: Selector {
                pid: Some(7),
                start_ticks: Some(884_213),
                executable: Some("/usr/bin/python*".to_owned()),
                uid: Some(1000),
                cgroup: Some("/kubepods.slice".to_owned()),
                container: Some("1f9c".to_owned()),
                pod: Some("7c1f*".to_owned()),
                job: Some("123".to_owned()),
                range: Some((0x7f00_0000_0000, 0x7f00_4000_0000).into()),
                allocation_larger_than_bytes: Some(64 << 20),
            },
            policy: Some("cycle".to_owned()),
            parameters: [("share".to_owned(), "0.5".to_owned())].into(),
            budget: Budget { bytes_per_second: Some(4 << 30), bytes: None },
            priority: -3,
            expires_at: Some("2027-01-01T00:00:00.000Z".to_owned()),
            ..given()
        };
        let known = rule::Override::try_from(given.clone()).unwrap();
        assert_eq!(Override::from(&known), given);
    }

    #[test]
    fn a_policy_that_is_not_given_is_the_one_that_chooses() {
        assert_eq!(rule::Override::try_from(given()).unwrap().policy, "auto-live");
    }

    #[test]
    fn what_means_nothing_is_named() {
        for id in ["", ".x", "a b", "a/b", "é", &"x".repeat(65)] {
            assert_eq!(field_of(Override { id: Some(id.to_owned()), ..given() }), "id", "{id}");
        }
        assert_eq!(field_of(Override { id: None, ..given() }), "id");
        assert_eq!(field_of(Override { mode: "on".to_owned(), ..given() }), "mode");
        assert_eq!(field_of(Override { policy: Some("none".to_owned()), ..given() }), "policy");
        assert_eq!(field_of(Override { expires_at: Some("2h".to_owned()), ..given() }), "expires_at");
        let with = |selector| Override { selector, ..given() };
        assert_eq!(field_of(with(Selector { pid: Some(0), ..Selector::default() })), "match.pid");
        let start_ticks = Some(884_213);
        assert_eq!(field_of(with(Selector { start_ticks, ..Selector::default() })), "match.start_ticks");
        assert_eq!(field_of(with(Selector { pod: Some(String::new()), ..Selector::default() })), "match.pod");
        assert_eq!(field_of(with(Selector { cgroup: Some("a".to_owned()), ..Selector::default() })), "match.cgroup");
        for (range, field) in [((2, 2), "match.range.end"), ((2, 1), "match.range.end")] {
            assert_eq!(field_of(with(Selector { range: Some(range.into()), ..Selector::default() })), field);
        }
        let budget = Budget { bytes: Some(0), ..Budget::default() };
        assert_eq!(field_of(Override { budget, ..given() }), "budget.bytes");
    }

    #[test]
    fn a_mistake_says_what_is_allowed() {
        let error = rule::Override::try_from(Override { mode: "on".to_owned(), ..given() }).unwrap_err();
        assert_eq!(error.to_string(), "mode: expected \"observe\", \"shadow\" or \"act\", not \"on\"");
    }
}
