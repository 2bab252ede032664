//! Text from overrides.

use api::rule::Override;
use serde_json::{Map, Value};

use super::Form;

/// Overrides in a file's format. Fields with default values are omitted.
///
/// # Errors
/// If a value cannot be written in TOML.
pub fn write(overrides: &[Override], form: Form) -> Result<String, toml::ser::Error> {
    let list: Vec<Value> = overrides.iter().map(sparse).collect();
    match form {
        Form::Json => Ok(format!("{:#}\n", Value::from(list))),
        // An empty list would be `override = []`.
        Form::Toml if list.is_empty() => Ok(String::new()),
        Form::Toml => toml::to_string_pretty(&Map::from_iter([("override".to_owned(), Value::from(list))])),
    }
}

/// JSON without nulls, empty objects and a priority of 0.
fn sparse(each: &Override) -> Value {
    let mut value = serde_json::to_value(each).unwrap_or_default();
    let Some(fields) = value.as_object_mut() else { return value };
    for inner in fields.values_mut().filter_map(Value::as_object_mut) {
        inner.retain(|_, value| !value.is_null());
        // Bytes beyond TOML's integers are written as text.
        for value in inner.values_mut().filter(|value| value.is_u64() && !value.is_i64()) {
            *value = value.to_string().into();
        }
    }
    fields.retain(|name, value| {
        let is_default = value.is_null()
            || value.as_object().is_some_and(Map::is_empty)
            || (name == "priority" && value.as_i64() == Some(0));
        !is_default
    });
    value
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use model::{Budget, MemoryRange, Selector};

    use super::*;
    use crate::overrides::parse_as;

    fn round_trip(overrides: &[Override], form: Form) -> Vec<Override> {
        let text = write(overrides, form).unwrap();
        parse_as(&text, form).unwrap_or_else(|error| panic!("{error} of {text}")).iter().map(Override::from).collect()
    }

    fn full() -> Override {
        Override {
            id: Some("full".to_owned()),
            selector: Selector {
                pid: Some(7),
                start_ticks: Some(99),
                executable: Some("/usr/bin/python* \"3\"\n".to_owned()),
                uid: Some(0),
                cgroup: Some("/a".to_owned()),
                container: Some("1f9c".to_owned()),
                pod: Some("7c1f*".to_owned()),
                job: Some("4711".to_owned()),
                range: Some(MemoryRange { begin: 0x7f00_0000_0000, end: 0x7f00_4000_0000 }),
                allocation_larger_than_bytes: Some(64 << 20),
            },
            mode: "act".to_owned(),
            policy: Some("cycle".to_owned()),
            parameters: BTreeMap::from([("rest".to_owned(), "remote".to_owned())]),
            budget: Budget { bytes_per_second: Some(4 << 30), bytes: Some(u64::MAX) },
            priority: -3,
            expires_at: Some("2027-01-01T00:00:00.000Z".to_owned()),
        }
    }

    #[test]
    fn written_overrides_round_trip() {
        let sparse = Override {
            id: Some("sparse".to_owned()),
            mode: "shadow".to_owned(),
            policy: Some("auto-live".to_owned()),
            ..Override::default()
        };
        for form in [Form::Toml, Form::Json] {
            assert_eq!(round_trip(&[full(), sparse.clone()], form), [full(), sparse.clone()], "{form:?}");
            assert_eq!(round_trip(&[], form), [], "{form:?}");
        }
    }

    #[test]
    fn fields_with_default_values_are_omitted() {
        let sparse = Override { id: Some("a".to_owned()), mode: "act".to_owned(), ..Override::default() };
        assert_eq!(write(&[sparse], Form::Toml).unwrap(), "[[override]]\nid = \"a\"\nmode = \"act\"\n");
    }
}
