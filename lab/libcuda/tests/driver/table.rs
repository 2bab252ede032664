//! The table of functions against the bindings, and against the library.

use std::{collections::BTreeSet, fs, path::PathBuf};

const TABLE: &str = include_str!("../../functions.txt");
/// Version up to which the table has all functions.
const VERSION: &str = "12090";

fn rows() -> Vec<(&'static str, &'static str)> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| (line.split(' ').next().unwrap(), line.splitn(3, ' ').nth(2).unwrap())).collect()
}

fn bindings() -> String {
    let metadata = cargo_metadata::MetadataCommand::new()
        .other_options(vec!["--offline".to_owned(), "--filter-platform=x86_64-unknown-linux-gnu".to_owned()])
        .exec()
        .unwrap();
    let package = metadata.packages.iter().find(|package| package.name.as_str() == "cudarc").unwrap();
    let folder: PathBuf = package.manifest_path.parent().unwrap().into();
    fs::read_to_string(folder.join("src/driver/sys/mod.rs")).unwrap()
}

#[test]
fn the_table_has_every_function_of_the_version() {
    let text = bindings();
    let known: BTreeSet<&str> = rows().iter().map(|(name, _)| *name).collect();
    let (mut condition, mut count) = ("", 0);
    for line in text.lines().map(str::trim) {
        if line.starts_with("#[cfg(") {
            condition = line;
        } else if let Some(rest) = line.strip_prefix("pub unsafe fn cu") {
            let name = format!("cu{}", rest.split('(').next().unwrap());
            let of_version = condition.is_empty() || condition.contains(&format!("cuda-{VERSION}"));
            if of_version && name != "culib" {
                assert!(known.contains(name.as_str()), "functions.txt lacks {name}");
                count += 1;
            }
            condition = "";
        } else if !line.starts_with("#[") {
            condition = "";
        }
    }
    assert!(count > 400, "{count}");
}

#[test]
fn the_table_is_sorted_and_gives_reasons() {
    let rows = rows();
    assert!(rows.is_sorted_by(|a, b| a.0 < b.0));
    for (name, state) in rows {
        let reason = state.split_once(": ").map_or("", |(_, reason)| reason);
        assert!(state == "done" || !reason.is_empty(), "{name}: {state}");
    }
}

#[test]
fn the_library_exports_the_whole_table_and_nothing_else_of_that_form() {
    // SAFETY: loads the library that the other tests use.
    let library = unsafe { cudarc::driver::sys::culib() };
    for (name, _) in rows() {
        // SAFETY: looked up, not called.
        let found = unsafe { library.get::<*const ()>(name.as_bytes()) };
        assert!(found.is_ok(), "{name} is not exported");
    }
}
