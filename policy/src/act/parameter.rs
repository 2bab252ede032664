//! What a policy can be told: the parameters of an override. Each reactor names its own, and nothing else is taken for one.

use std::{collections::BTreeMap, fmt};

use model::api::rule::{self, one_of};

use super::catalogue;

/// A parameter of a policy.
#[derive(Debug)]
pub struct Parameter {
    /// Its name in overrides.
    pub name: &'static str,
    /// Which values mean something.
    pub form: Form,
}

/// Which values of a parameter mean something.
#[derive(Debug)]
pub enum Form {
    /// Whole numbers, from the first to the last of these.
    Number(u64, u64),
    /// These words, of which the first holds unless another is given.
    Word(&'static [&'static str]),
}

impl Form {
    fn takes(&self, value: &str) -> bool {
        match self {
            Self::Number(least, most) => value.parse().is_ok_and(|number: u64| (*least..=*most).contains(&number)),
            Self::Word(words) => words.contains(&value),
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(least, most) => write!(f, "a whole number from {least} to {most}"),
            Self::Word(words) => f.write_str(&one_of(words)),
        }
    }
}

/// Whether the policy of this name takes these parameters. `auto-live` takes those of all that it chooses from: each of them takes its own.
///
/// # Errors
/// The first that it does not take, or whose value means nothing to it.
pub fn check(policy: &str, parameters: &BTreeMap<String, String>) -> Result<(), rule::Invalid> {
    let taken: Vec<&Parameter> = catalogue::parameters(policy).collect();
    for (name, value) in parameters {
        let Some(parameter) = taken.iter().find(|each| each.name == name) else {
            let mut names: Vec<&str> = taken.iter().map(|each| each.name).collect();
            names.sort_unstable();
            names.dedup();
            let known = if names.is_empty() { "no parameters".to_owned() } else { one_of(&names) };
            return Err(invalid(name, format!("{policy} takes {known}, not {name:?}")));
        };
        if !parameter.form.takes(value) {
            return Err(invalid(name, format!("expected {}, not {value:?}", parameter.form)));
        }
    }
    Ok(())
}

fn invalid(name: &str, detail: String) -> rule::Invalid {
    // What is no name cannot be pointed at.
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    let field = if is_name { format!("parameters.{name}").into() } else { "parameters".into() };
    rule::Invalid { field, detail }
}
