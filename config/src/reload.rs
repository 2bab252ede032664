//! Options that take effect at a reload, and those that require a restart. docs/configuration.md
//! lists them.

use std::collections::BTreeSet;

use toml::{Table, Value};

use crate::{Auth, Collector, Config, Http, Log, Metrics, Policy};

impl Config {
    /// This configuration, with the values of `new` for options that take effect at once.
    #[must_use]
    pub fn reloaded(&self, new: &Self) -> Self {
        let Self { http, auth, log, collector, metrics, policy, .. } = new.clone();
        let Http { hosts } = http;
        let Auth { token_file, write_token_file, token_file_group_readable } = auth;
        Self {
            http: Http { hosts },
            auth: Auth { token_file, write_token_file, token_file_group_readable },
            log: Log { filter: log.filter, ..self.log.clone() },
            collector: Collector {
                source: self.collector.source,
                tools_level: self.collector.tools_level,
                crosscheck: self.collector.crosscheck,
                interval: self.collector.interval,
                ..collector
            },
            metrics: Metrics { listen: self.metrics.listen, ..metrics },
            policy: Policy {
                mode: policy.mode,
                policy: policy.policy,
                overrides_file: policy.overrides_file,
                bytes_per_second: policy.bytes_per_second,
                process_bytes_per_second: policy.process_bytes_per_second,
                process_bytes: policy.process_bytes,
                ..self.policy.clone()
            },
            ..self.clone()
        }
    }

    /// Keys of all options that differ, with their tables, such as `log.filter`.
    #[must_use]
    pub fn differences(&self, other: &Self) -> Vec<String> {
        // Every option can be serialized.
        let table = |config: &Self| Table::try_from(config).unwrap_or_default();
        let mut keys = Vec::new();
        compare("", &table(self), &table(other), &mut keys);
        keys
    }
}

/// Compares tables; an option without a value is in no table.
fn compare(prefix: &str, one: &Table, other: &Table, keys: &mut Vec<String>) {
    let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
    for name in names {
        let key = format!("{prefix}{name}");
        match (one.get(name), other.get(name)) {
            (Some(Value::Table(one)), Some(Value::Table(other))) => compare(&format!("{key}."), one, other, keys),
            (one, other) if one != other => keys.push(key),
            _ => {}
        }
    }
}
