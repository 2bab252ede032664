//! Golden files of the public surface: metrics, REST API, command lines and configuration.
//!
//! The crate that owns a part renders it in a test of its own and calls [`hold`], so that a name, type or default changes only together with its
//! golden file. `scripts/surface --update` writes the files anew. The rules for names are in `tests/names.rs`.
#![expect(clippy::panic, reason = "a library for tests alone")]

mod commands;
mod openapi;
mod words;

use std::{env, fs, path::Path};

pub use commands::commands;
pub use openapi::openapi;
pub use words::{identifiers, refused, refused_in_help};

/// Folder of the golden files.
pub const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");

/// Compares `text` with the golden file of this name. Writes the file instead where `UPDATE_SURFACE` is set.
///
/// # Panics
///
/// If they differ, with the first line that does; if the file cannot be read or written.
pub fn hold(name: &str, text: &str) {
    let path = Path::new(GOLDEN).join(name);
    if env::var_os("UPDATE_SURFACE").is_some() {
        fs::write(&path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    }
    let golden = fs::read_to_string(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    if let Some(difference) = first_difference(&golden, text) {
        panic!("the public surface differs from {name}: {difference}; `scripts/surface --update` if that is meant");
    }
}

/// The first line in which two texts differ.
fn first_difference(golden: &str, text: &str) -> Option<String> {
    let (mut golden, mut text) = (golden.lines(), text.lines());
    for number in 1.. {
        match (golden.next(), text.next()) {
            (None, None) => break,
            (before, now) if before != now => {
                let line = |line: Option<&str>| line.map_or("no line".to_owned(), |line| format!("`{}`", line.trim()));
                return Some(format!("line {number} is {}, was {}", line(now), line(before)));
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::first_difference;

    #[test]
    fn changed_added_and_removed_lines_are_differences() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n").unwrap(), "line 2 is `c`, was `b`");
        assert_eq!(first_difference("a\n", "a\n  b\n").unwrap(), "line 2 is `b`, was no line");
        assert_eq!(first_difference("a\nb\n", "a\n").unwrap(), "line 2 is no line, was `b`");
    }
}
