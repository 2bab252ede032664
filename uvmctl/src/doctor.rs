//! `uvmctl doctor`: checks of this node for all that uvmd needs.
//!
//! Reads the node directly, queries the daemon if it runs, and needs no privileges: a check without
//! permission reports that.
//!
//! * `node`: the kernel and the privileges of uvmd
//! * `driver`: the loaded nvidia-uvm
//! * `tools`: the driver's tools, in place of probes
//! * `service`: the daemon and its configuration
//! * `report`: the checks as text and as JSON

mod driver;
mod node;
mod report;
mod service;
mod tools;

use std::{fs, io::Write, path::PathBuf};

use api::Status;
use clap::Args;
use config::value::Source;
use serde::Serialize;
use sys::{
    Roots,
    capabilities::Capabilities,
    driver::module,
    preconditions::{Missing, missing},
};

use crate::{
    client::{Client, Error},
    output::{Page, Screen, View},
};

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Configuration file of uvmd [default: /etc/uvmd/uvmd.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Path of the node's /proc, as in a container
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    proc: PathBuf,

    /// Path of the node's /sys
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    sys: PathBuf,
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    name: &'static str,
    verdict: Verdict,
    /// Observed fact.
    finding: String,
    /// Remedy.
    advice: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    /// uvmd works with limitations.
    Warning,
    /// A requirement of uvmd is not met.
    Missing,
    /// The check lacks a permission.
    Unknown,
}

impl Check {
    fn ok(name: &'static str, finding: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Ok, finding: finding.into(), advice: None }
    }

    fn warning(name: &'static str, finding: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Warning, finding: finding.into(), advice: Some(advice.into()) }
    }

    fn missing(name: &'static str, finding: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Missing, finding: finding.into(), advice: Some(advice.into()) }
    }

    fn unknown(name: &'static str, finding: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Unknown, finding: finding.into(), advice: Some(advice.into()) }
    }

    /// Splits a sentence such as "there is no X: do Y" into finding and remedy.
    fn missing_from_sentence(name: &'static str, sentence: &str) -> Self {
        let (finding, advice) = sentence.split_once(": ").unwrap_or((sentence, ""));
        let advice = Some(advice.to_owned()).filter(|advice| !advice.is_empty());
        Self { name, verdict: Verdict::Missing, finding: finding.to_owned(), advice }
    }

    /// Check of one precondition.
    fn precondition(name: &'static str, lacking: &[Missing], relevant: &[Missing], finding: &str) -> Self {
        match lacking.iter().find(|requirement| relevant.contains(requirement)) {
            Some(requirement) => Self::missing_from_sentence(name, &requirement.to_string()),
            None => Self::ok(name, finding),
        }
    }
}

/// The view of all checks.
pub(crate) struct Doctor {
    options: Options,
    is_something_missing: bool,
}

impl Doctor {
    pub(crate) const fn new(options: Options) -> Self {
        Self { options, is_something_missing: false }
    }

    /// Whether the last checks found an unmet requirement.
    pub(crate) const fn is_something_missing(&self) -> bool {
        self.is_something_missing
    }

    /// Name of the node whose /proc is read. The daemon may be on another one, which its checks name.
    fn node(&self) -> String {
        let name = fs::read_to_string(self.options.proc.join("sys/kernel/hostname")).unwrap_or_default();
        let name = name.trim();
        if name.is_empty() { "without a name".to_owned() } else { name.to_owned() }
    }

    fn checks(&mut self, client: &Client) -> Vec<Check> {
        let Options { config, proc, sys } = &self.options;
        let roots = Roots { proc: proc.clone(), sys: sys.clone() };
        let module = module(&roots);
        let lacking = missing(&roots, module.as_ref());
        let mut checks = node::checks(&roots, &lacking);
        checks.extend(driver::checks(&roots, module.as_ref(), &lacking));
        let loaded = config::load(config.as_deref(), &[]);
        let wants_probes = loaded.as_ref().is_ok_and(|loaded| loaded.config.collector.source == Source::Probes);
        let status = client.get::<Status>("/api/v1/status").map(|answer| answer.body);
        let subject = match &status {
            Ok(status) => Some(tools::Subject::Daemon(status)),
            Err(Error::Unreachable { .. }) if !wants_probes => {
                Some(tools::Subject::Caller(Capabilities::of_this_process().ok()))
            }
            Err(_) => None,
        };
        if let Some(tools) = subject.and_then(|subject| tools::check(&subject, module.as_ref(), &lacking)) {
            if !matches!(tools.verdict, Verdict::Unknown | Verdict::Missing) {
                tools::downgrade_probe_checks(&mut checks);
            }
            checks.push(tools);
        }
        checks.push(service::configuration(&loaded));
        checks.extend(service::checks(status.as_ref()));
        self.is_something_missing = checks.iter().any(|check| check.verdict == Verdict::Missing);
        checks
    }
}

impl View for Doctor {
    fn page(&mut self, client: &Client, Screen { width, colour }: Screen) -> anyhow::Result<Page> {
        Ok(Page::text(report::text(&self.node(), &self.checks(client), width, colour)))
    }

    fn json(&mut self, client: &Client, out: &mut dyn Write) -> anyhow::Result<()> {
        Ok(writeln!(out, "{}", report::json(&self.node(), &self.checks(client))?)?)
    }

    fn has_names(&self) -> bool {
        false
    }
}
