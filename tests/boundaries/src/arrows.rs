//! Arrows between crates, against those that ARCHITECTURE.md lists.

use std::collections::{BTreeMap, BTreeSet};

use crate::{crates::Crates, table::Row};

/// Differences between the crates and the table, and arrows that do not lead down.
#[must_use]
pub fn differences(crates: &Crates, table: &BTreeMap<String, Row>) -> Vec<String> {
    let names: BTreeSet<_> = crates.keys().chain(table.keys()).collect();
    names.into_iter().flat_map(|name| of(name, crates, table)).collect()
}

fn of(name: &str, crates: &Crates, table: &BTreeMap<String, Row>) -> Vec<String> {
    let (each, row) = match (crates.get(name), table.get(name)) {
        (Some(each), Some(row)) => (each, row),
        (Some(_), None) => return vec![format!("{name} is not listed")],
        (None, _) => return vec![format!("{name} is listed and does not exist")],
    };
    let mut found = Vec::new();
    if each.folder != row.folder {
        found.push(format!("{name} lies in {}, listed in {}", each.folder.display(), row.folder.display()));
    }
    found.extend(each.uses.difference(&row.uses).map(|used| format!("{name} uses {used}, which is not listed")));
    found.extend(row.uses.difference(&each.uses).map(|used| format!("{name} does not use {used}, which is listed")));
    let is_below = |used: &&String| table.get(*used).is_some_and(|other| other.level < row.level);
    found.extend(each.uses.iter().filter(|used| !is_below(used)).map(|used| format!("{used} is not below {name}")));
    found
}

/// Linked crates of the workspace that `name` may not link.
#[must_use]
pub fn not_allowed(crates: &Crates, name: &str, allowed: &[&str]) -> Vec<String> {
    let mut linked = crate::crates::closure(crates, name);
    linked.retain(|used| !allowed.contains(&used.as_str()));
    linked.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crates::Crate;

    fn crates(all: &[(&str, &[&str])]) -> Crates {
        let uses = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let each = |&(name, names): &(&str, &[&str])| {
            (name.to_owned(), Crate { folder: name.into(), uses: uses(names), roots: Vec::new() })
        };
        all.iter().map(each).collect()
    }

    fn table(all: &[(u32, &str, &[&str])]) -> BTreeMap<String, Row> {
        let uses = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let row = |&(level, name, names): &(u32, &str, &[&str])| {
            (name.to_owned(), Row { level, folder: name.into(), uses: uses(names) })
        };
        all.iter().map(row).collect()
    }

    #[test]
    fn accurate_table_has_no_differences() {
        let found = differences(
            &crates(&[("web", &["model"]), ("model", &[])]),
            &table(&[(1, "web", &["model"]), (0, "model", &[])]),
        );
        assert_eq!(found, [""; 0]);
    }

    #[test]
    fn unlisted_and_removed_arrows_are_found() {
        let listed = table(&[(0, "model", &[]), (0, "sys", &[]), (1, "web", &["sys"])]);
        let found = differences(&crates(&[("web", &["model"]), ("model", &[]), ("sys", &[])]), &listed);
        assert_eq!(found, ["web uses model, which is not listed", "web does not use sys, which is listed"]);
    }

    #[test]
    fn arrow_to_the_same_or_a_higher_level_is_found() {
        let are = crates(&[("config", &["policy"]), ("policy", &[])]);
        for level in [1, 2] {
            let listed = table(&[(1, "config", &["policy"]), (level, "policy", &[])]);
            assert_eq!(differences(&are, &listed), ["policy is not below config"]);
        }
    }

    #[test]
    fn unlisted_missing_and_moved_crates_are_found() {
        let mut listed = table(&[(0, "trace", &[]), (0, "gone", &[])]);
        listed.get_mut("trace").unwrap().folder = "offline/trace".into();
        let found = differences(&crates(&[("new", &[]), ("trace", &[])]), &listed);
        let wanted =
            ["gone is listed and does not exist", "new is not listed", "trace lies in trace, listed in offline/trace"];
        assert_eq!(found, wanted);
    }

    #[test]
    fn transitively_linked_crate_is_found() {
        let are = crates(&[("lab", &["sim"]), ("sim", &["policy", "trace"]), ("policy", &[]), ("trace", &[])]);
        assert_eq!(not_allowed(&are, "lab", &["sim", "trace"]), ["policy"]);
    }
}
