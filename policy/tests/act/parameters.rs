//! Parameters that an override can pass to a policy.

use std::collections::BTreeMap;

use api::rule::check_parameters;
use model::policy::{CHOOSER, Form, POLICIES, parameters};

const DOCUMENT: &str = include_str!("../../../docs/policies.md");

fn error(policy: &str, name: &str, value: &str) -> Option<String> {
    check_parameters(policy, &BTreeMap::from([(name.to_owned(), value.to_owned())]))
        .err()
        .map(|error| error.to_string())
}

#[test]
fn policies_accept_their_own_parameters_with_valid_values() {
    for (policy, name, value) in [
        ("ping-pong", "bounces", "8"),
        ("cycle", "rest", "remote"),
        ("hot-cold", "rest", "stream"),
        ("stream", "ahead_mib", "8"),
        ("auto-live", "rest", "remote"),
        ("auto-live", "bounces", "8"),
    ] {
        assert_eq!(error(policy, name, value), None, "{policy}");
    }
}

#[test]
fn unknown_parameters_and_values_are_rejected_with_the_accepted_ones() {
    for (policy, name, value, expected) in [
        ("cycle", "rest", "remot", r#"parameters.rest: expected "stream" or "remote", not "remot""#),
        ("auto-live", "rest", "no", r#"parameters.rest: expected "stream" or "remote", not "no""#),
        ("stream", "ahead_mib", "7", r#"parameters.ahead_mib: expected a whole number from 8 to 16777216, not "7""#),
        ("ping-pong", "bounces", "x", r#"parameters.bounces: expected a whole number from 1 to 1000000, not "x""#),
        ("cycle", "Rest", "auto", r#"parameters.Rest: cycle takes "rest", not "Rest""#),
        ("tenants", "rest", "auto", r#"parameters.rest: tenants takes no parameters, not "rest""#),
        ("cycle", "a.b", "", r#"parameters: cycle takes "rest", not "a.b""#),
    ] {
        assert_eq!(error(policy, name, value).as_deref(), Some(expected));
    }
}

#[test]
fn documentation_lists_the_parameters_of_each_policy_with_their_values() {
    for policy in POLICIES.iter().map(|policy| policy.name).filter(|policy| *policy != CHOOSER) {
        let section = DOCUMENT.split("\n## ").find(|section| section.starts_with(&format!("`{policy}`\n")));
        let documented = section.and_then(|section| section.lines().find(|line| line.starts_with("**Parameters**")));
        assert_eq!(documented.is_some(), parameters(policy).next().is_some(), "{policy}");
        for parameter in parameters(policy) {
            let values: Vec<String> = match parameter.form {
                Form::Number(least, _) => vec![format!("from {least}")],
                Form::Word(words) => words.iter().map(|word| format!("`{word}`")).collect(),
            };
            let is_documented = |text: &String| documented.is_some_and(|documented| documented.contains(text.as_str()));
            assert!(
                is_documented(&format!("`{}`", parameter.name)) && values.iter().all(is_documented),
                "{policy}: {parameter:?}"
            );
        }
    }
}
