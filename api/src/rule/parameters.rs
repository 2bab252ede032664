//! Parameters of an override, checked against the registry of policies.

use std::collections::BTreeMap;

use model::policy::{Form, Parameter, parameters};

use super::parse::{Invalid, one_of};

/// Checks the parameters of an override.
///
/// # Errors
///
/// The first that the policy does not have, or whose value is not permitted.
pub fn check_parameters(policy: &str, given: &BTreeMap<String, String>) -> Result<(), Invalid> {
    let known: Vec<&Parameter> = parameters(policy).collect();
    for (name, value) in given {
        let Some(parameter) = known.iter().find(|each| each.name == name) else {
            let mut names: Vec<&str> = known.iter().map(|each| each.name).collect();
            names.sort_unstable();
            names.dedup();
            let known = if names.is_empty() { "no parameters".to_owned() } else { one_of(&names) };
            return Err(invalid(name, format!("{policy} takes {known}, not {name:?}")));
        };
        if !parameter.form.permits(value) {
            return Err(invalid(name, format!("expected {}, not {value:?}", permitted(&parameter.form))));
        }
    }
    Ok(())
}

fn invalid(name: &str, detail: String) -> Invalid {
    // What is no name cannot be pointed at.
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    let field = if is_name { format!("parameters.{name}").into() } else { "parameters".into() };
    Invalid { field, detail }
}

/// Permitted values in words.
fn permitted(form: &Form) -> String {
    match form {
        Form::Number(least, most) => format!("a whole number from {least} to {most}"),
        Form::Word(words) => one_of(words),
    }
}
