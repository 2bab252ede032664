//! `uvmctl doctor`: what this node has and lacks of what uvmd needs.
//!
//! It looks at the node itself and asks the daemon, if there is one, and needs no privileges: what it may not see is not checked, and said so.
//!
//! * `node`: the kernel and what it lets uvmd do
//! * `driver`: nvidia-uvm as it is loaded
//! * `service`: the daemon and its configuration
//! * `report`: all of it, for people

mod driver;
mod node;
mod report;
mod service;

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;
use serde::Serialize;
use sys::{
    Roots,
    driver::module,
    preconditions::{Missing, missing},
};

use crate::{
    client::Client,
    terminal::{self, Colour},
};

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Print the checks as JSON
    #[arg(long)]
    json: bool,

    /// The daemon's configuration file [default: /etc/uvmd/uvmd.toml, if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Where the node's /proc is, as in a container
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    proc: PathBuf,

    /// Where the node's /sys is
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

pub(crate) fn run(client: &Client, options: Options) -> anyhow::Result<ExitCode> {
    let Options { json, config, proc, sys } = options;
    let roots = Roots { proc, sys };
    let module = module(&roots);
    let lacking = missing(&roots, module.as_ref());

    let mut checks = node::checks(&roots, &lacking);
    checks.extend(driver::checks(&roots, module.as_ref(), &lacking));
    checks.extend(service::checks(client, config.as_deref()));
    let output =
        if json { report::json(&checks)? + "\n" } else { report::text(&checks, terminal::width(), Colour::detect()) };
    io::stdout().write_all(output.as_bytes())?;
    let is_missing = checks.iter().any(|check| check.verdict == Verdict::Missing);
    Ok(if is_missing { ExitCode::from(crate::FAILED) } else { ExitCode::SUCCESS })
}
