//! Table of crates in ARCHITECTURE.md.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use crate::Error;

const HEAD: &str = "| level | crate | uses | content |";

/// Row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Level; a crate uses lower levels only.
    pub level: u32,
    /// Folder below the root of the workspace, by default the crate's name.
    pub folder: PathBuf,
    /// Crates that it may use.
    pub uses: BTreeSet<String>,
}

/// Rows by crate name.
///
/// # Errors
///
/// If there is no table, or a row is malformed.
pub fn table(document: &str) -> Result<BTreeMap<String, Row>, Error> {
    let (_, below) = document.split_once(HEAD).ok_or_else(|| Error::Row("no table of crates".to_owned()))?;
    // The first is the rest of the head's line, the second the rule below it.
    let lines = below.lines().skip(2).take_while(|line| line.starts_with('|'));
    lines.map(|line| row(line).ok_or_else(|| Error::Row(line.to_owned()))).collect()
}

fn row(line: &str) -> Option<(String, Row)> {
    let mut cells = line.trim_matches('|').split('|').map(str::trim);
    let level = cells.next()?.parse().ok()?;
    let mut names = quoted(cells.next()?);
    let uses = quoted(cells.next()?).collect();
    let name = names.next()?;
    let folder = names.next().unwrap_or_else(|| name.clone()).into();
    Some((name, Row { level, folder, uses }))
}

/// Texts between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_has_a_level_a_name_a_folder_and_arrows() {
        let text = format!(
            "words\n{HEAD}\n| --- | --- | --- | --- |\n| 2 | `sim` (`offline/sim`) | `planner`, `zvc` | timing |\n| 0 | `abi` | | records |\n\nmore"
        );
        let rows = table(&text).unwrap();
        let uses = BTreeSet::from(["planner".to_owned(), "zvc".to_owned()]);
        assert_eq!(rows["sim"], Row { level: 2, folder: "offline/sim".into(), uses });
        assert_eq!(rows["abi"], Row { level: 0, folder: "abi".into(), uses: BTreeSet::new() });
        assert_eq!(rows.len(), 2);
    }

    #[test]
    fn missing_table_and_malformed_row_are_errors() {
        assert!(table("| crate | uses |").is_err());
        assert!(table(&format!("{HEAD}\n| --- |\n| | `fuzz` | most of the above | targets |")).is_err());
    }
}
