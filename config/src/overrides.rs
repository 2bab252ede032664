//! The file of overrides: what is wanted for which processes.

use std::{collections::HashSet, fs, io, path::Path};

use model::{Override, api::rule};
use serde::Deserialize;
use sys::private;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::load::{ConfigError, Mistake, line_at, mistake, read};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default, rename = "override")]
    overrides: Vec<Spanned<rule::Override>>,
}

/// Reads a file of overrides. Where there is none, there are no overrides.
///
/// # Errors
/// See [`ConfigError`].
pub fn load(file: &Path) -> Result<Vec<Override>, ConfigError> {
    // What is read again every second must not be waited for, as a FIFO is. Links are fine: Kubernetes makes some.
    if fs::metadata(file).is_ok_and(|found| !found.is_file()) {
        return Err(ConfigError::Unreadable { file: file.into(), source: private::irregular() });
    }
    let text = match read(file) {
        Ok(text) => text,
        // A link that leads nowhere is a mistake, and not a file that nobody wrote.
        Err(error) if error.kind() == io::ErrorKind::NotFound && !file.is_symlink() => return Ok(Vec::new()),
        Err(source) => return Err(ConfigError::Unreadable { file: file.into(), source }),
    };
    parse(&text).map_err(|mistake| ConfigError::File { file: file.into(), mistake })
}

/// What such a file says.
///
/// # Errors
/// The first mistake in it.
pub fn parse(text: &str) -> Result<Vec<Override>, Mistake> {
    let File { overrides } = toml::from_str(text).map_err(|error| mistake(text, &error))?;
    let mut names = HashSet::new();
    let mut known = Vec::with_capacity(overrides.len());
    for (index, given) in overrides.into_iter().enumerate() {
        let start = given.span().start;
        let wrong = |rule::Invalid { field, detail }| Mistake {
            line: line_at(text, place(text, index, &field).unwrap_or(start)),
            key: Some(format!("override.{field}")),
            message: detail,
        };
        let each = Override::try_from(given.into_inner()).map_err(wrong)?;
        rule::check_parameters(&each.policy, &each.parameters).map_err(wrong)?;
        if !names.insert(each.id.clone()) {
            return Err(wrong(rule::Invalid {
                field: "id".into(),
                detail: format!("another override is called {:?}", each.id),
            }));
        }
        known.push(each);
    }
    Ok(known)
}

/// Where in the text the value of a field is.
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

#[cfg(test)]
mod tests {
    use model::Mode;

    use super::*;

    fn message(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_file_has_as_many_overrides_as_it_likes() {
        let overrides = parse(
            "[[override]]\nid = \"llm\"\nmatch = { pod = \"7c1f*\", allocation_larger_than_bytes = \"64 MiB\" }\nmode = \"act\"\n\
             budget = { bytes_per_second = \"4 GiB\" }\nexpires = \"2027-01-01T00:00:00Z\"\n\n\
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
        assert!(llm.expires.is_some());
        assert_eq!(
            (mine.mode, mine.policy.as_str(), mine.selector.pid, mine.priority),
            (Mode::Shadow, "cycle", Some(7), 3)
        );
        assert_eq!(parse(""), Ok(Vec::new()));
    }

    #[test]
    fn a_mistake_is_named_by_its_line_and_key_with_what_is_allowed() {
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
    fn where_there_is_no_file_there_are_no_overrides() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(load(&folder.path().join("none.toml")).unwrap(), Vec::new());
    }

    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        for path in [folder.path(), &fifo] {
            assert!(load(path).unwrap_err().to_string().ends_with("it is not a regular file"));
        }
    }
}
