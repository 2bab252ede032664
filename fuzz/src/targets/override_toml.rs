//! `config::overrides`: file of overrides.
//!
//! Valid overrides have unique names and round-trip; a mistake is one line with a place in the
//! file.

use std::collections::HashSet;

use config::overrides;
use api::rule;

pub(super) fn run(input: &[u8]) {
    #[derive(serde::Serialize)]
    struct File {
        r#override: Vec<rule::Override>,
    }
    let Ok(text) = std::str::from_utf8(input) else { return };
    let known = match overrides::parse(text) {
        Ok(known) => known,
        Err(mistake) => return super::check_mistake(text, &mistake),
    };
    let names: HashSet<&str> = known.iter().map(|each| each.id.as_str()).collect();
    assert_eq!(names.len(), known.len(), "no two have one name");
    known.iter().for_each(super::override_json::check);
    let told: Vec<rule::Override> = known.iter().map(rule::Override::from).collect();
    let written = toml::to_string(&File { r#override: told.clone() }).expect("every override can be written");
    let again = overrides::parse(&written).expect("what was written reads");
    assert_eq!(again.iter().map(rule::Override::from).collect::<Vec<_>>(), told);
}
