//! `uvmctl policy apply`: the overrides of files, put in effect.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};
use api::rule::{Override, OverrideStatus, Overrides};
use clap::Args;
use config::overrides::{Form, parse_as};
use serde::Serialize;
use ureq::http::Method;

use super::{List, path, show};
use crate::{client::Client, output, resource::Kind, text};

#[derive(Debug, Args)]
pub(crate) struct ApplyOptions {
    /// File of overrides in TOML or JSON, folder of such files, or - for standard input
    #[arg(long = "file", short, required = true, value_name = "PATH")]
    files: Vec<PathBuf>,

    /// Delete the overrides of the API that the files do not have
    #[arg(long)]
    prune: bool,

    /// Report the changes without making them
    #[arg(long)]
    dry_run: bool,
}

/// Change to one override.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Change {
    Created,
    Configured,
    Unchanged,
    Deleted,
}

/// Change to one override, of the files or to be pruned.
#[derive(Debug, Serialize)]
struct Step {
    id: String,
    change: Change,
    #[serde(skip)]
    body: Option<String>,
}

/// Step with the override that uvmd returned.
#[derive(Debug, Serialize)]
struct StepResult<'a> {
    #[serde(flatten)]
    step: &'a Step,
    /// The override after it; `None` where nothing was put.
    #[serde(skip)]
    status: Option<OverrideStatus>,
}

/// Parses all files and compares them with uvmd's overrides, before the first request that changes
/// state.
pub(super) fn run(client: &Client, options: &ApplyOptions, output: &output::Options) -> anyhow::Result<()> {
    let desired = read(&options.files)?;
    let known = client.list::<Overrides>(&List::path())?.overrides;
    let steps = steps(&desired, &known, options.prune)?;
    let mut done = Vec::with_capacity(steps.len());
    for (number, step) in steps.iter().enumerate() {
        let result = if options.dry_run { Ok(None) } else { step.execute(client) };
        match result {
            Ok(status) => done.push(StepResult { step, status }),
            Err(error) => {
                report(&done, options.dry_run, output)?;
                let context = format!("{}: {number} of {} overrides are applied", step.name(), steps.len());
                return Err(error.context(context));
            }
        }
    }
    report(&done, options.dry_run, output)
}

/// The overrides of all files, by id.
fn read(paths: &[PathBuf]) -> anyhow::Result<BTreeMap<String, Override>> {
    let mut desired = BTreeMap::new();
    for path in paths {
        for (file, text, form) in texts(path)? {
            let overrides = parse_as(&text, form).map_err(|mistake| anyhow::anyhow!("{file}:{mistake}"))?;
            for each in &overrides {
                if desired.insert(each.id.clone(), Override::from(each)).is_some() {
                    bail!("{file}: another file has an override {:?}", each.id);
                }
            }
        }
    }
    Ok(desired)
}

/// The files of a path, with their names for messages.
fn texts(path: &Path) -> anyhow::Result<Vec<(String, String, Form)>> {
    if path == Path::new("-") {
        let text = io::read_to_string(io::stdin().lock()).context("cannot read standard input")?;
        let form = Form::guess(&text);
        return Ok(vec![("standard input".to_owned(), text, form)]);
    }
    let mut files = vec![path.to_owned()];
    if path.is_dir() {
        let entries = fs::read_dir(path).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        files = entries.with_context(|| unreadable(path))?.iter().map(fs::DirEntry::path).collect();
        files.retain(|file| file.extension().is_some_and(|ending| ending == "toml" || ending == "json"));
        files.sort();
    }
    let text = |file: PathBuf| {
        let text = fs::read_to_string(&file).with_context(|| unreadable(&file))?;
        Ok((name(&file), text, Form::of(&file)))
    };
    files.into_iter().map(text).collect()
}

fn unreadable(path: &Path) -> String {
    format!("cannot read {}", name(path))
}

fn name(path: &Path) -> String {
    text::printable(&path.to_string_lossy()).into_owned()
}

/// Changes to the overrides of the files in the order of their ids, then to those to be pruned.
fn steps(desired: &BTreeMap<String, Override>, known: &[OverrideStatus], prune: bool) -> anyhow::Result<Vec<Step>> {
    let id = |status: &OverrideStatus| status.r#override.id.clone().unwrap_or_default();
    let known: BTreeMap<String, &OverrideStatus> = known.iter().map(|status| (id(status), status)).collect();
    let mut steps = Vec::new();
    for (id, desired) in desired {
        let change = match known.get(id) {
            None => Change::Created,
            Some(status) if status.source != "api" => {
                bail!("{} is in a file of uvmd, and can be changed only there", Kind::Override.named(id))
            }
            Some(status) if status.r#override.is_as_asked(desired) => Change::Unchanged,
            Some(_) => Change::Configured,
        };
        let body = serde_json::to_string(&Override { id: None, ..desired.clone() })?;
        steps.push(Step { id: id.clone(), change, body: Some(body) });
    }
    if prune {
        let extra = known.iter().filter(|(id, status)| status.source == "api" && !desired.contains_key(*id));
        steps.extend(extra.map(|(id, _)| Step { id: id.clone(), change: Change::Deleted, body: None }));
    }
    Ok(steps)
}

impl Step {
    fn name(&self) -> String {
        Kind::Override.named(&self.id)
    }

    /// Makes the change. Returns the override that was put.
    fn execute(&self, client: &Client) -> anyhow::Result<Option<OverrideStatus>> {
        let method = match self.change {
            Change::Created | Change::Configured => Method::PUT,
            Change::Deleted => Method::DELETE,
            Change::Unchanged => return Ok(None),
        };
        let response = client.change(&method, &path(&self.id), self.body.as_deref())?;
        if method == Method::DELETE {
            return Ok(None);
        }
        Ok(Some(serde_json::from_str(&response).context("the response is not uvmd's")?))
    }
}

fn report(done: &[StepResult<'_>], dry_run: bool, output: &output::Options) -> anyhow::Result<()> {
    if done.is_empty() {
        return output.report("no overrides", "[]", "");
    }
    let lines = |line: &dyn Fn(&StepResult<'_>) -> String| done.iter().map(line).collect::<Vec<_>>().join("\n");
    let word = |step: &Step| match step.change {
        Change::Created => "created",
        Change::Configured => "configured",
        Change::Unchanged => "unchanged",
        Change::Deleted => "deleted",
    };
    let suffix = if dry_run { " (dry run)" } else { "" };
    let text = lines(&|StepResult { step, status }| {
        let matches = status.as_ref().and_then(show::matches).map(|matches| format!(", {matches}"));
        format!("{} {}{suffix}{}", step.name(), word(step), matches.unwrap_or_default())
    });
    output.report(&text, &serde_json::to_string(done)?, &lines(&|done| done.step.name()))
}
