//! `uvmctl`: output for a daemon's responses, which may not be uvmd's.
//!
//! Input: number of a command, and the responses to its requests, separated by [`SEPARATOR`]. The
//! output contains no control sequences, and is not much longer than the responses.

use uvmctl::fuzzing::View;

const SEPARATOR: &str = "\n%%\n";
/// Columns have titles and blanks: a row of `top` has 250 columns, and of empty JSON 100 bytes.
const PRINTED_OF_A_BYTE: usize = 64;
const PRINTED_AT_LEAST: usize = 64 << 10;

pub(super) fn run(input: &[u8]) {
    let Some((command, answers)) = input.split_first() else { return };
    let Ok(answers) = std::str::from_utf8(answers) else { return };
    let Some(view) = View::ALL.get(usize::from(command.wrapping_sub(b'0'))) else { return };
    let all: Vec<&str> = answers.split(SEPARATOR).collect();
    for width in [None, Some(80), Some(1)] {
        let Some(printed) = view.shown(&all, width) else { return };
        super::check_printable(&printed);
        let most = PRINTED_AT_LEAST + PRINTED_OF_A_BYTE * answers.len();
        assert!(printed.len() <= most, "{} bytes are printed of {}", printed.len(), answers.len());
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// A seed with outdated types is rejected at once, and its mutations reach nothing.
    #[test]
    fn each_seed_is_printed() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/answers");
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let text = fs::read_to_string(&path).unwrap();
            let (command, answers) = text.split_at(1);
            let view = View::ALL[command.parse::<usize>().unwrap()];
            let all: Vec<&str> = answers.split(SEPARATOR).collect();
            assert!(view.shown(&all, None).is_some(), "{}", path.display());
        }
    }
}
