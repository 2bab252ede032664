//! Text of overrides, in TOML or JSON.

use std::{collections::HashSet, fmt, path::Path};

use api::rule;
use model::Override;
use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    error::Mistake,
    load::{line_at, mistake},
};

/// Form of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Tables `[[override]]`.
    Toml,
    /// An override as in a request to the API, a list of them, or a list as in a response; or an
    /// object like the TOML.
    Json,
}

impl Form {
    /// Form of a file, by its name: JSON if it ends in `.json`.
    #[must_use]
    pub fn of(file: &Path) -> Self {
        if file.extension().is_some_and(|extension| extension == "json") { Self::Json } else { Self::Toml }
    }

    /// Form of a text without a name, by its first characters.
    #[must_use]
    pub fn guess(text: &str) -> Self {
        let mut beginning = text.chars().filter(|character| !character.is_whitespace());
        match (beginning.next(), beginning.next()) {
            (Some('{'), _) | (Some('['), Some('{' | ']')) => Self::Json,
            _ => Self::Toml,
        }
    }
}

/// Override, with the line of its id or of its start.
#[derive(Debug)]
pub(super) struct Located {
    pub(super) rule: Override,
    pub(super) line: usize,
}

/// Parses overrides in TOML.
///
/// # Errors
/// First mistake.
pub fn parse(text: &str) -> Result<Vec<Override>, Mistake> {
    parse_as(text, Form::Toml)
}

/// Parses overrides in this format.
///
/// # Errors
/// First mistake.
pub fn parse_as(text: &str, form: Form) -> Result<Vec<Override>, Mistake> {
    Ok(locate(text, form)?.into_iter().map(|located| located.rule).collect())
}

pub(super) fn locate(text: &str, form: Form) -> Result<Vec<Located>, Mistake> {
    let all = match form {
        Form::Toml => of_toml(text),
        Form::Json => of_json(text),
    }?;
    let mut ids = HashSet::new();
    for Located { rule, line } in &all {
        if !ids.insert(&rule.id) {
            let message = format!("another override is called {:?}", rule.id);
            return Err(Mistake { line: *line, key: Some("override.id".to_owned()), message });
        }
    }
    Ok(all)
}

fn checked(given: rule::Override) -> Result<Override, rule::Invalid> {
    let rule = Override::try_from(given)?;
    rule::check_matchable(&rule.selector)?;
    rule::check_parameters(&rule.policy, &rule.parameters)?;
    Ok(rule)
}

// === TOML ===

fn of_toml(text: &str) -> Result<Vec<Located>, Mistake> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        #[serde(default, rename = "override")]
        overrides: Vec<Spanned<rule::Override>>,
    }
    let File { overrides } = toml::from_str(text).map_err(|error| mistake(text, &error))?;
    let located = |(index, given): (usize, Spanned<rule::Override>)| {
        let start = given.span().start;
        let line = |field: &str| line_at(text, place(text, index, field).unwrap_or(start));
        let wrong = |rule::Invalid { field, detail }| Mistake {
            line: line(&field),
            key: Some(format!("override.{field}")),
            message: detail,
        };
        Ok(Located { line: line("id"), rule: checked(given.into_inner()).map_err(wrong)? })
    };
    overrides.into_iter().enumerate().map(located).collect()
}

/// Position of a field's value in the text.
fn place(text: &str, index: usize, field: &str) -> Option<usize> {
    let table = DeTable::parse(text).ok()?;
    let mut value = table.get_ref().get("override")?.get_ref().get(index)?;
    for key in field.split('.') {
        value = match value.get_ref() {
            DeValue::Table(table) => table.get(key)?,
            _ => return None,
        };
    }
    Some(value.span().start)
}

// === JSON ===

/// Top level of a text.
enum Top<'a> {
    List(Vec<&'a RawValue>),
    /// An override, or an object with a list.
    Object(Object<'a>),
}

#[derive(Deserialize)]
struct Object<'a> {
    /// As in TOML; in a list of the API, the override of an item.
    #[serde(borrow, rename = "override")]
    inner: Option<&'a RawValue>,
    /// List of the API.
    #[serde(borrow)]
    overrides: Option<Vec<&'a RawValue>>,
    /// Next page of such a list.
    #[serde(borrow, rename = "continue")]
    next: Option<&'a RawValue>,
}

fn of_json(text: &str) -> Result<Vec<Located>, Mistake> {
    let syntax = |error: serde_json::Error| at(text, text, &error, None);
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let items = match serde_json::from_str(text).map_err(syntax)? {
        Top::Object(Object { next: Some(next), .. }) if next.get() != "null" => {
            let message = "this is a page of a longer list: request it with a limit that includes all".to_owned();
            return Err(Mistake { line: line_of(text, next.get()), key: Some("continue".to_owned()), message });
        }
        Top::List(items) | Top::Object(Object { overrides: Some(items), .. }) => items,
        Top::Object(Object { inner: Some(list), .. }) if list.get().starts_with('[') => {
            serde_json::from_str(list.get()).map_err(|error| at(text, list.get(), &error, None))?
        }
        Top::Object(Object { inner: Some(one), .. }) => vec![one],
        Top::Object(_) => vec![serde_json::from_str(text).map_err(syntax)?],
    };
    items.into_iter().map(|item| of_item(text, item)).collect()
}

/// Parses an override, alone or as an item of the API's list.
fn of_item(text: &str, item: &RawValue) -> Result<Located, Mistake> {
    let inner = serde_json::from_str::<Object<'_>>(item.get()).ok().and_then(|item| item.inner);
    let part = inner.unwrap_or(item).get();
    let mut json = serde_json::Deserializer::from_str(part);
    let given: rule::Override = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        at(text, part, error.inner(), Some(path).filter(|path| path != "."))
    })?;
    let line = |field: &str| {
        let name = field.rsplit('.').next().unwrap_or_default();
        let within = part.find(&format!("\"{name}\"")).and_then(|place| part.get(place..));
        line_of(text, within.unwrap_or(part))
    };
    let wrong = |rule::Invalid { field, detail }| Mistake {
        line: line(&field),
        key: Some(format!("override.{field}")),
        message: detail,
    };
    Ok(Located { line: line("id"), rule: checked(given).map_err(wrong)? })
}

/// Mistake in a part of the text.
fn at(text: &str, part: &str, error: &serde_json::Error, field: Option<String>) -> Mistake {
    let line = line_of(text, part) + error.line().saturating_sub(1);
    // Without the position within the part.
    let message = error.to_string();
    let message = message.rsplit_once(" at line ").map_or(message.as_str(), |(message, _)| message);
    let message = message.replacen("unknown field", "unknown key", 1).replace('\n', ", ");
    Mistake { line, key: field.map(|field| format!("override.{field}")), message }
}

/// Line of the text at which a part starts.
fn line_of(text: &str, part: &str) -> usize {
    let place = (part.as_ptr() as usize).saturating_sub(text.as_ptr() as usize);
    line_at(text, place.min(text.len()))
}

impl<'de: 'a, 'a> Deserialize<'de> for Top<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Top<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an override, or a list of overrides")
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
                Vec::deserialize(de::value::SeqAccessDeserializer::new(items)).map(Top::List)
            }

            fn visit_map<A: de::MapAccess<'de>>(self, fields: A) -> Result<Self::Value, A::Error> {
                Object::deserialize(de::value::MapAccessDeserializer::new(fields)).map(Top::Object)
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use model::Mode;

    use super::*;

    fn message(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn file_has_any_number_of_overrides() {
        let overrides = parse(
            "[[override]]\nid = \"llm\"\nmatch = { pod = \"7c1f*\", allocation_larger_than_bytes = \"64 MiB\" }\nmode = \"act\"\n\
             budget = { bytes_per_second = \"4 GiB\" }\nexpires_at = \"2027-01-01T00:00:00Z\"\n\n\
             [[override]]\nid = \"mine\"\nmode = \"shadow\"\npolicy = \"cycle\"\npriority = 3\n[override.match]\npid = 7\n",
        )
        .unwrap();
        let [llm, mine] = overrides.as_slice() else { panic!("{overrides:?}") };
        assert_eq!(
            (llm.mode, llm.policy.as_str(), llm.selector.pod.as_deref()),
            (Mode::Act, "auto-live", Some("7c1f*"))
        );
        assert_eq!(
            (llm.selector.allocation_larger_than_bytes, llm.budget.bytes_per_second),
            (Some(64 << 20), Some(4 << 30))
        );
        assert!(llm.expires_at.is_some());
        assert_eq!(
            (mine.mode, mine.policy.as_str(), mine.selector.pid, mine.priority),
            (Mode::Shadow, "cycle", Some(7), 3)
        );
        assert_eq!(parse(""), Ok(Vec::new()));
    }

    #[test]
    fn mistake_has_line_key_and_allowed_values() {
        assert_eq!(
            message("[[override]]\nid = \"a\"\nmode = \"on\"\n"),
            "3: override.mode: expected \"observe\", \"shadow\" or \"act\", not \"on\""
        );
        assert_eq!(
            message("[[override]]\nid = \"a\"\nmode = \"act\"\n[[override]]\nmode = \"act\"\nid = \"a\"\n"),
            "6: override.id: another override is called \"a\""
        );
        assert_eq!(message("[[override]]\n\nmode = \"act\"\n"), "1: override.id: an override needs a name");
        let unknown = message("[[override]]\nid = \"a\"\nmode = \"act\"\nmatch = { pot = \"a\" }\n");
        assert!(unknown.starts_with("4: override.match.pot: unknown key `pot`, expected one of `pid`"), "{unknown}");
        let size = message("[[override]]\nid = \"a\"\nmode = \"act\"\nbudget.bytes = \"much\"\n");
        assert!(
            size.starts_with("4: override.budget.bytes: invalid value: string \"much\", expected a number of bytes"),
            "{size}"
        );
        assert_eq!(
            message(
                "[[override]]\nid = \"a\"\nmode = \"act\"\npolicy = \"cycle\"\nparameters = { rest = \"remot\" }\n"
            ),
            "5: override.parameters.rest: expected \"stream\" or \"remote\", not \"remot\""
        );
        assert_eq!(
            message("[[override]]\nid = \"a\"\nmode = \"act\"\nparameters.ahead = \"64\"\n"),
            "4: override.parameters.ahead: auto-live takes \"ahead_mib\", \"bounces\" or \"rest\", not \"ahead\""
        );
        assert!(message("[[overrides]]\n").starts_with("1: overrides: unknown key"), "{}", message("[[overrides]]\n"));
    }

    #[test]
    fn a_time_needs_no_quotes_in_toml() {
        let expires = |time: &str| {
            let text = format!("[[override]]\nid = \"a\"\nmode = \"act\"\nexpires_at = {time}\n");
            parse(&text).map(|overrides| overrides[0].expires_at)
        };
        assert_eq!(expires("2027-01-01T00:00:00Z"), expires("\"2027-01-01T00:00:00Z\""));
        assert!(expires("2027-01-01T00:00:00Z").unwrap().is_some());
        assert!(expires("7").unwrap_err().to_string().contains("expected a time"));
        assert!(expires("{ a = 1 }").unwrap_err().to_string().contains("expected a time"));
    }

    #[test]
    fn json_has_the_forms_of_requests_and_responses_and_of_the_file() {
        let one = r#"{"id": "a", "mode": "act", "match": {"pid": null, "pod": "7c1f0c0e"}, "budget": {"bytes": "1 GiB"}, "policy": null}"#;
        let status = format!(r#"{{"override": {one}, "source": "api", "expired": false}}"#);
        let page = format!(r#"{{"overrides": [{status}], "file_error": null, "continue": null, "remaining": 0}}"#);
        let like_toml = format!(r#"{{"override": [{one}]}}"#);
        let expected =
            parse("[[override]]\nid = \"a\"\nmode = \"act\"\nmatch.pod = \"7c1f0c0e\"\nbudget.bytes = \"1 GiB\"\n");
        for text in [one, &format!("[{one}]"), &status, &format!("[{status}]"), &page, &like_toml] {
            assert_eq!(Form::guess(text), Form::Json, "{text}");
            assert_eq!(parse_as(text, Form::Json), expected, "{text}");
        }
        for text in ["", "[]", "{\"override\": []}"] {
            assert_eq!(parse_as(text, Form::Json), Ok(Vec::new()), "{text}");
        }
        assert_eq!(Form::guess("\n[[override]]"), Form::Toml);
    }

    #[test]
    fn a_mistake_in_json_is_named_by_its_line_and_key() {
        let message = |text: &str| parse_as(text, Form::Json).unwrap_err().to_string();
        assert_eq!(
            message("[\n {\"id\": \"a\",\n  \"mode\": \"on\"}]"),
            "3: override.mode: expected \"observe\", \"shadow\" or \"act\", not \"on\""
        );
        assert_eq!(
            message("[{\"id\": \"a\", \"mode\": \"act\"},\n{\"mode\": \"act\",\n\"id\": \"a\"}]"),
            "3: override.id: another override is called \"a\""
        );
        let unknown = message("{\"id\": \"a\",\n\"mode\": \"act\", \"match\":\n{\"pot\": 1}}");
        assert!(unknown.starts_with("3: override.match.pot: unknown key `pot`, expected one of `pid`"), "{unknown}");
        assert!(message("{\"id\": \"a\"}").starts_with("1: missing field `mode`"), "{}", message("{\"id\": \"a\"}"));
        assert!(message("[\n{]").starts_with("2: "));
        assert_eq!(message("7"), "1: invalid type: integer `7`, expected an override, or a list of overrides");
        let page = "{\"overrides\": [],\n\"continue\": \"x\"}";
        assert!(message(page).starts_with("2: continue: this is a page of a longer list"), "{}", message(page));
    }
}
