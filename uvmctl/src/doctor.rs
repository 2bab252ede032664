//! `uvmctl doctor`: checks of this node for all that uvmd needs.
//!
//! It reads the node itself, asks the daemon if there is one, and needs no privileges: a check that lacks a permission says so.
//!
//! * `node`: the kernel and the privileges of uvmd
//! * `driver`: nvidia-uvm as it is loaded
//! * `service`: the daemon and its configuration
//! * `report`: the checks as text and as JSON

mod driver;
mod node;
mod report;
mod service;

use std::{io::Write, path::PathBuf};

use clap::Args;
use serde::Serialize;
use sys::{
    Roots,
    driver::module,
    preconditions::{Missing, missing},
};

use crate::{
    client::Client,
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

/// What one look showed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Check {
    name: &'static str,
    verdict: Verdict,
    /// What is so.
    finding: String,
    /// What to do about it.
    advice: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    Ok,
    /// uvmd works, but not in every way.
    Warning,
    /// uvmd needs it.
    Missing,
    /// It may not be seen from here.
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

    /// From a sentence such as "there is no X: do Y".
    fn missing_as_told(name: &'static str, sentence: &str) -> Self {
        let (finding, advice) = sentence.split_once(": ").unwrap_or((sentence, ""));
        let advice = Some(advice.to_owned()).filter(|advice| !advice.is_empty());
        Self { name, verdict: Verdict::Missing, finding: finding.to_owned(), advice }
    }

    /// One of the preconditions.
    fn precondition(name: &'static str, lacking: &[Missing], these: &[Missing], finding: &str) -> Self {
        match lacking.iter().find(|what| these.contains(what)) {
            Some(what) => Self::missing_as_told(name, &what.to_string()),
            None => Self::ok(name, finding),
        }
    }
}

/// The checks.
pub(crate) struct Doctor {
    options: Options,
    is_something_missing: bool,
}

impl Doctor {
    pub(crate) const fn new(options: Options) -> Self {
        Self { options, is_something_missing: false }
    }

    /// Whether the last look found that something is missing that uvmd needs.
    pub(crate) const fn is_something_missing(&self) -> bool {
        self.is_something_missing
    }

    fn checks(&mut self, client: &Client) -> Vec<Check> {
        let Options { config, proc, sys } = &self.options;
        let roots = Roots { proc: proc.clone(), sys: sys.clone() };
        let module = module(&roots);
        let lacking = missing(&roots, module.as_ref());
        let mut checks = node::checks(&roots, &lacking);
        checks.extend(driver::checks(&roots, module.as_ref(), &lacking));
        checks.extend(service::checks(client, config.as_deref()));
        self.is_something_missing = checks.iter().any(|check| check.verdict == Verdict::Missing);
        checks
    }
}

impl View for Doctor {
    fn look(&mut self, client: &Client, Screen { width, colour }: Screen) -> anyhow::Result<Page> {
        Ok(Page::text(report::text(&self.checks(client), width, colour)))
    }

    fn json(&mut self, client: &Client, out: &mut dyn Write) -> anyhow::Result<()> {
        Ok(writeln!(out, "{}", report::json(&self.checks(client))?)?)
    }

    fn has_names(&self) -> bool {
        false
    }
}
