//! The shipped file and the document agree with the code.
#![cfg(test)]

use std::{collections::BTreeMap, env, fs, path::Path};

use config::{Config, SHIPPED_FILE, load::parse, value::LogFilter};
use serde_json::Value;

/// File with every option enabled: an option follows a `#` without a space, a remark a `#` and a
/// space.
fn with_every_option() -> String {
    let line = |line: &str| match line.strip_prefix('#') {
        Some(option) if option.starts_with(|c: char| c.is_ascii_lowercase()) => format!("{option}\n"),
        _ => format!("{line}\n"),
    };
    SHIPPED_FILE.lines().map(line).collect()
}

/// Keys with their tables, and their values.
fn flat(config: &Config) -> BTreeMap<String, Value> {
    fn add(flat: &mut BTreeMap<String, Value>, prefix: &str, value: Value) {
        match value {
            Value::Object(table) => {
                for (key, value) in table {
                    add(flat, &format!("{prefix}.{key}"), value);
                }
            }
            value => {
                flat.insert(prefix.trim_start_matches('.').to_owned(), value);
            }
        }
    }
    let mut all = BTreeMap::new();
    add(&mut all, "", serde_json::to_value(config).unwrap());
    all
}

#[test]
fn shipped_file_equals_the_defaults() {
    assert_eq!(parse(SHIPPED_FILE), Ok(Config::default()));
}

#[test]
fn every_option_is_in_the_file_with_its_default() {
    let shown = flat(&parse(&with_every_option()).unwrap());
    for (key, default) in flat(&Config::default()) {
        if default.is_null() {
            assert!(!shown[&key].is_null(), "{key} has no example");
        } else {
            assert_eq!(shown[&key], default, "{key}");
        }
    }
    let options = with_every_option().parse::<toml::Table>().unwrap();
    let count: usize = options.values().map(|value| value.as_table().map_or(1, toml::Table::len)).sum();
    assert_eq!(count, shown.len(), "the file does not have every option");
}

#[test]
fn every_option_in_the_file_is_explained_above_it() {
    let lines: Vec<_> = SHIPPED_FILE.lines().collect();
    for pair in lines.windows(2) {
        let is_option = |line: &str| line.starts_with('#') && !line.starts_with("# ") && line.len() > 1;
        assert!(!is_option(pair[1]) || pair[0].starts_with('#'), "{}", pair[1]);
    }
}

#[test]
fn default_filter_equals_its_text() {
    assert_eq!(parse("log.filter = \"info\"").unwrap().log.filter, LogFilter::default());
}

#[test]
fn written_configuration_round_trips() {
    let config = parse(&with_every_option()).unwrap();
    assert_eq!(parse(&toml::to_string(&config).unwrap()), Ok(config));
}

#[test]
fn the_document_has_the_shipped_file() {
    const BEGIN: &str = "```toml\n";
    const END: &str = "```\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    let document = fs::read_to_string(&path).unwrap();
    let (before, rest) = document.split_once(BEGIN).unwrap();
    let (shown, after) = rest.split_once(END).unwrap();
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, [before, BEGIN, SHIPPED_FILE, END, after].concat()).unwrap();
    } else {
        assert!(
            shown == SHIPPED_FILE,
            "docs/configuration.md is out of date: run UPDATE_DOCS=1 cargo test -p config --test shipped"
        );
    }
}

#[test]
fn the_options_are_those_of_the_golden_file() {
    let defaults = flat(&Config::default());
    let lines = defaults.iter().map(|(key, default)| format!("{key} = {default}\n"));
    surface::hold("config.txt", &lines.collect::<String>());
}
