//! Rules that every public name keeps: words of the field, units and suffixes of each convention.
#![cfg(test)]

use std::{collections::BTreeSet, fs, path::Path};

use surface::{GOLDEN, identifiers, refused};

/// Lines of a golden file without their indentation.
fn lines(file: &str) -> Vec<(usize, String)> {
    let path = Path::new(GOLDEN).join(file);
    let text = fs::read_to_string(&path).unwrap();
    text.lines().map(|line| (line.len() - line.trim_start().len(), line.trim().to_owned())).collect()
}

fn files() -> Vec<String> {
    let entries = fs::read_dir(GOLDEN).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    entries.filter(|name| Path::new(name).extension().is_some_and(|extension| extension == "txt")).collect()
}

#[test]
fn names_have_no_refused_words() {
    let mut wrong = BTreeSet::new();
    for file in files() {
        for (_, line) in lines(&file) {
            wrong.extend(identifiers(&line).filter_map(refused).map(|reason| format!("{file}: {reason}")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// What the page's scripts read: a name that the API does not have would be `undefined`, unnoticed.
#[test]
fn page_reads_only_names_of_the_api() {
    let golden: String = ["api.txt", "values.txt", "config.txt"]
        .map(|file| fs::read_to_string(Path::new(GOLDEN).join(file)).unwrap())
        .concat();
    let known: BTreeSet<&str> = golden.lines().flat_map(identifiers).collect();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../web/page");
    let mut unknown = BTreeSet::new();
    for entry in fs::read_dir(page).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "js") {
            continue;
        }
        let script = fs::read_to_string(&path).unwrap();
        let code = script.lines().filter(|line| !line.trim_start().starts_with("//")).flat_map(identifiers);
        let is_of_api = |name: &&str| {
            name.trim_matches('_').contains('_') && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
        };
        unknown.extend(code.filter(is_of_api).filter(|name| !known.contains(name)).map(str::to_owned));
    }
    // Of the page itself: the interval of its history, and two values that golden files have no line for.
    let own = ["every_ms", "hot_set", "sampled_out", "token_file"];
    unknown.retain(|name| !own.contains(&name.as_str()));
    assert!(unknown.is_empty(), "{unknown:?}");
}

#[test]
fn refused_word_is_found_in_every_case_style() {
    for name in ["uvm_lost_total", "pushed-out", "Whom", "--held-back", "in_force"] {
        assert!(identifiers(name).any(|name| refused(name).is_some()), "{name}");
    }
    assert_eq!(refused("uvm_evictions_total"), None);
    assert_eq!(refused("overrides"), None, "a word within a word is another one");
}

/// Name and type of each metric.
fn metrics() -> Vec<(String, String)> {
    let metrics = lines("metrics.txt").into_iter().filter(|(indent, _)| *indent == 0);
    metrics
        .map(|(_, line)| line.split_once(' ').map(|(name, kind)| (name.to_owned(), kind.to_owned())).unwrap())
        .collect()
}

#[test]
fn metrics_have_prefix_base_unit_and_suffix() {
    for (name, kind) in metrics() {
        assert!(["uvm_", "uvmd_", "process_"].iter().any(|prefix| name.starts_with(prefix)), "{name}: prefix");
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name} is a {kind}");
        let parts: Vec<_> = name.split('_').collect();
        for unit in ["ns", "us", "ms", "kib", "mib", "percent", "share"] {
            assert!(!parts.contains(&unit), "{name}: {unit} is no base unit");
        }
    }
}

#[test]
fn json_fields_are_snake_case_with_unit_or_time() {
    let fields = lines("api.txt").into_iter().filter(|(indent, line)| *indent > 0 && line.contains(": "));
    for (_, line) in fields {
        let (name, kind) = line.split_once(": ").unwrap();
        let name = name.rsplit(' ').next().unwrap();
        if name.contains('/') || name == "last-event-id" {
            continue; // a media type or a header
        }
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'), "{line}: case");
        let is_number = kind.starts_with("integer") || kind.starts_with("number");
        assert!(!(name.ends_with("_at") && is_number), "{line}: a time is a string");
        assert!(
            !["us", "ms", "percent", "share"].iter().any(|unit| name.split('_').any(|part| part == *unit)),
            "{line}: unit"
        );
    }
}

#[test]
fn options_are_kebab_case_and_configuration_keys_are_snake_case() {
    for file in files().iter().filter(|file| file.starts_with("uvm")) {
        for (_, line) in lines(file) {
            let long = line.split(' ').find_map(|word| word.strip_prefix("--"));
            assert!(long.is_none_or(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '-')), "{file}: {line}");
        }
    }
    for (_, line) in lines("config.txt") {
        let key = line.split(" = ").next().unwrap();
        assert!(key.chars().all(|c| c.is_ascii_lowercase() || "._".contains(c)), "{key}");
    }
}
