//! Test of the hooks against the functions of the driver API, which `helper/functions.txt` lists:
//! each is hooked, or passed for a reason, or known to be missed.
//!
//! `UPDATE_DOCS=1 cargo test -p hooks functions` writes `helper/hooked.rs`, and the tables of
//! `docs/helper.md`.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::PathBuf,
};

macro_rules! exports {
    ($($name:ident)*) => { const EXPORTED: &[&str] = &[$(stringify!($name)),*]; };
}
include!("../../../hooked.rs");

const FUNCTIONS: &str = include_str!("../../../functions.txt");

/// Treatment of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Treatment {
    /// Hooked, and recorded as these operations.
    Hooked(&'static str),
    /// Not hooked, for this reason.
    Passed(&'static str),
    /// Not hooked, and missed.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
struct Function {
    name: &'static str,
    treatment: Treatment,
}

impl Function {
    /// Function in a line: name, version of CUDA, treatment.
    fn parse(line: &'static str) -> Self {
        let mut words = line.splitn(3, ' ');
        let [name, since, treatment] = std::array::from_fn(|_| words.next().unwrap_or_else(|| panic!("{line}")));
        assert!(since.parse().is_ok_and(|since: u32| (2000..=CUDA_VERSION).contains(&since)), "{line}");
        let treatment = match treatment.split_once(": ") {
            Some(("hooked", records)) => Treatment::Hooked(records),
            Some(("passed", reason)) => Treatment::Passed(reason),
            None if treatment == "unknown" => Treatment::Unknown,
            _ => panic!("{line}"),
        };
        Self { name, treatment }
    }

    /// Name without the suffixes of versions and of kinds of streams.
    fn base(self) -> &'static str {
        let name = self.name.trim_end_matches("_ptsz").trim_end_matches("_ptds");
        name.rsplit_once("_v").filter(|(_, version)| version.parse::<u8>().is_ok()).map_or(name, |(base, _)| base)
    }
}

/// Version of CUDA whose functions are listed.
const CUDA_VERSION: u32 = 13050;

fn functions() -> impl Iterator<Item = Function> {
    FUNCTIONS.lines().filter(|line| !line.starts_with('#')).map(Function::parse)
}

fn repository(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Compares a file with its expected content, or writes it.
fn assert_or_update(path: &str, expected: &str) {
    let path = repository(path);
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, expected).unwrap();
    }
    let is_current = fs::read_to_string(&path).unwrap() == expected;
    assert!(is_current, "{} is out of date: run UPDATE_DOCS=1 cargo test -p hooks functions", path.display());
}

fn hooks() -> BTreeSet<&'static str> {
    super::all().map(|hook| hook.name.to_str().unwrap()).collect()
}

#[test]
fn functions_are_listed_once_and_in_order() {
    let names: Vec<&str> = functions().map(|function| function.name).collect();
    assert!(names.is_sorted_by(|one, next| one < next));
    assert!(names.len() > 600);
}

#[test]
fn listed_hooks_are_those_that_exist() {
    let is_hooked = |function: &Function| matches!(function.treatment, Treatment::Hooked(_));
    let listed: BTreeSet<&str> = functions().filter(is_hooked).map(|function| function.name).collect();
    assert_eq!(listed, hooks());
}

#[test]
fn each_hook_is_exported() {
    let names: String = hooks().iter().map(|name| ["    ", name, "\n"].concat()).collect();
    assert_or_update("helper/hooked.rs", &format!("exports! {{\n{names}}}\n"));
    // As compiled in: after an update, the next run.
    assert_eq!(EXPORTED, hooks().into_iter().collect::<Vec<_>>());
}

/// Rows of a table: a text, and the functions that it applies to.
fn rows(text: impl Fn(Treatment) -> Option<&'static str>) -> String {
    let mut groups: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for function in functions() {
        if let Some(text) = text(function.treatment) {
            groups.entry(text).or_default().insert(function.base());
        }
    }
    let row = |(text, names): (&str, BTreeSet<&str>)| {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        // Their names would be half of the table.
        let names = if text == "queries" { format!("{} functions", names.len()) } else { names.join(", ") };
        format!("| {text} | {names} |\n")
    };
    groups.into_iter().map(row).collect()
}

#[test]
fn document_has_the_functions() {
    let tables = [
        (
            "| recorded as | functions |\n",
            rows(|treatment| match treatment {
                Treatment::Hooked(records) => Some(records),
                Treatment::Passed(_) | Treatment::Unknown => None,
            }),
        ),
        (
            "| not hooked | functions |\n",
            rows(|treatment| match treatment {
                Treatment::Passed(reason) => Some(reason),
                Treatment::Hooked(_) | Treatment::Unknown => None,
            }),
        ),
        (
            "| missed | functions |\n",
            rows(|treatment| match treatment {
                Treatment::Unknown => Some("calls that change memory, launches or graphs"),
                Treatment::Hooked(_) | Treatment::Passed(_) => None,
            }),
        ),
    ];
    let path = "docs/helper.md";
    let mut document = fs::read_to_string(repository(path)).unwrap();
    for (title, rows) in tables {
        let (before, rest) = document.split_once(title).unwrap();
        let (_, after) = rest.split_once("\n\n").unwrap();
        document = [before, title, "| --- | --- |\n", &rows, "\n", after].concat();
    }
    assert_or_update(path, &document);
}
