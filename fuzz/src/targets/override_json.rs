//! Overrides in JSON: the body of PUT and POST, uvmd's state file of them, and files of them.
//!
//! A valid override is within its limits, and round-trips in every form.

use config::overrides::{self, Form};
use api::rule;

pub(super) fn run(input: &[u8]) {
    run_as_file(input);
    let Ok(given) = serde_json::from_slice::<rule::Override>(input) else { return };
    let written = serde_json::to_vec(&given).expect("it has text keys");
    assert_eq!(serde_json::from_slice::<rule::Override>(&written).expect("what was written reads"), given);
    let known = match model::Override::try_from(given) {
        Ok(known) => known,
        Err(rule::Invalid { field, detail }) => {
            assert!(!field.is_empty() && !detail.is_empty());
            return;
        }
    };
    check(&known);
}

/// Reads the input as a file, with its other forms.
fn run_as_file(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match overrides::parse_as(text, Form::Json) {
        Ok(known) => known.iter().for_each(check),
        Err(mistake) => super::check_mistake(text, &mistake),
    }
}

/// Checks the properties of every valid override.
pub(super) fn check(known: &model::Override) {
    assert!((1..=64).contains(&known.id.len()) && known.id.is_ascii(), "{:?}", known.id);
    assert!(known.parameters.len() <= 16);
    assert!(known.selector.pid != Some(0));
    assert!(known.selector.range.is_none_or(|range| range.begin < range.end));
    if let Err(invalid) = rule::check_parameters(&known.policy, &known.parameters) {
        assert!(invalid.field.starts_with("parameters"), "{invalid:?}");
    }
    // As in responses and the state file: times with milliseconds.
    let encoded = rule::Override::from(known);
    let again = model::Override::try_from(encoded.clone()).expect("an encoded override is valid");
    assert_eq!(rule::Override::from(&again), encoded);
    assert_eq!(model::Override { expires_at: None, ..again }, model::Override { expires_at: None, ..known.clone() });
}
