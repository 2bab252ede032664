//! Options that take effect while uvmd runs.
#![cfg(test)]

use std::{collections::BTreeSet, env, fs, path::Path};

use config::{Config, SHIPPED_FILE, load::parse};

/// Configuration in which every option differs from its default.
const OTHER: &str = r#"
listen = "none"
hostname = "other"
http.hosts = ["other"]
socket = { enabled = false, path = "/other", group = "other", write_group = "other" }
auth = { token_file = "/other", write_token_file = "/other", token_file_group_readable = true }
log = { filter = "warn", format = "json", file = "/other" }
collector = { source = "tools", tools_level = "faults", crosscheck = "sampled", interval = "7s", ended_retention = "7s", max_ended = 7, max_owners = 7, owner_retention = "7s", max_eviction_pairs = 7 }
owners.names = "/other"
metrics = { listen = "127.0.0.1:7", web_config_file = "/other", per_process = true, max_processes = 7 }
records = { enabled = false, max_per_second = 7, ring_size = "8 MiB" }
recordings = { enabled = false, max = 7, max_per_user = 7 }
verdicts.window = "7s"
[policy]
enabled = true
mode = "shadow"
policy = "cycle"
actuator = "helper"
touch_probe = true
touch_probe_bytes = "7 GiB"
interval = "7s"
overrides_file = "/other"
fleet_overrides_file = "/other"
state_dir = "/other"
kill_switch = "/other"
audit_log = "/other"
audit_log_size = "7 MiB"
audit_log_files = 7
bytes_per_second = "7 GiB"
process_bytes_per_second = "7 GiB"
process_bytes = "7 GiB"
host_reserve = "7 GiB"
migrate_chunk_size = "8 MiB"
"#;

/// Head of the table in the document.
const BEGIN: &str = "| option | takes effect |\n| --- | --- |\n";

fn set(keys: Vec<String>) -> BTreeSet<String> {
    keys.into_iter().collect()
}

#[test]
fn every_option_reloads_or_stays_as_documented() {
    let (default, other) = (Config::default(), parse(OTHER).unwrap());
    let all = set(default.differences(&other));
    let count =
        SHIPPED_FILE.lines().filter(|line| line.starts_with('#') && line.get(1..2).is_some_and(|c| c != " ")).count();
    assert_eq!(all.len(), count, "{all:?}");

    let reloaded = default.reloaded(&other);
    let (live, restart) = (set(default.differences(&reloaded)), set(reloaded.differences(&other)));
    assert!(live.is_disjoint(&restart));
    assert_eq!(live.union(&restart).cloned().collect::<BTreeSet<_>>(), all);

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    let document = fs::read_to_string(&path).unwrap();
    let (before, rest) = document.split_once(BEGIN).unwrap();
    let (shown, after) = rest.split_once("\n\n").unwrap();
    let row =
        |key: &String| format!("| `{key}` | {} |", if live.contains(key) { "at once" } else { "after a restart" });
    let rows: Vec<String> = all.iter().map(row).collect();
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, [before, BEGIN, &rows.join("\n"), "\n\n", after].concat()).unwrap();
    } else {
        assert_eq!(shown, rows.join("\n"), "run UPDATE_DOCS=1 cargo test -p config --test reload");
    }
}

#[test]
fn equal_configurations_have_no_differences() {
    let config = parse(OTHER).unwrap();
    assert!(config.differences(&config.clone()).is_empty());
    assert_eq!(config.reloaded(&config), config);
}
