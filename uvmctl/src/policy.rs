//! `uvmctl policy`: overrides, and the switch of all acting.

mod apply;
mod export;
mod selection;
pub(crate) mod show;

use std::{collections::BTreeMap, fmt, io::Write, time::SystemTime};

use anyhow::{Context, bail};
use api::{
    Status,
    rule::{EffectivePolicy, Override, OverrideStatus, Overrides, PolicyState},
};
use clap::{
    Args, Subcommand, ValueEnum,
    builder::{PossibleValue, PossibleValuesParser},
};
use model::{
    Budget, Mode, Selector, policy,
    text::{parse_bytes, parse_time, time},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use selection::Selection;
use ureq::http::Method;

use crate::{
    client::{Client, Error, PAGE},
    completion, explain,
    output::{self, Page, Screen, View},
    resource::{self, Kind},
    terminal, text,
};

#[derive(Debug, Subcommand)]
pub(crate) enum Options {
    /// List the overrides in order of precedence, and whether uvmd acts
    Show,
    /// Create or replace an override
    ///
    /// The same selection replaces the same override, unless --id names another. An override stays
    /// until it is unset or expires, over restarts of uvmd too. Begin with --mode shadow, which
    /// changes nothing: uvmctl decisions then lists the decisions that uvmd would execute.
    Set(Box<SetOptions>),
    /// Remove an override by its id, or all overrides of a selection
    ///
    /// Of the API; those of uvmd's files are removed there.
    Unset(Box<UnsetOptions>),
    /// Create or replace the overrides of files, and report each as created, configured or
    /// unchanged
    ///
    /// All files are read and checked before anything changes. The form is that of overrides.toml
    /// and overrides.d, in TOML or JSON.
    Apply(apply::ApplyOptions),
    /// Write overrides in the form of files, which apply takes
    Export(export::ExportOptions),
    /// Explain the policy in effect for a process: the selected override, the other candidates, and
    /// the restrictions
    Explain(ExplainOptions),
    /// Stop acting on all processes and roll back all decisions in effect, until acting is switched
    /// on
    Off,
    /// Switch acting on
    On,
}

#[derive(Debug, Args)]
#[command(mut_group("selection", |selection| selection.required(true)))]
pub(crate) struct SetOptions {
    #[command(flatten)]
    selection: Selection,

    /// Mode
    #[arg(long, value_enum)]
    mode: ModeName,

    /// Policy: observe, ping-pong, stream, cycle, hot-cold, tenants, or auto-live, which chooses
    /// among them
    #[arg(long, value_parser = policy_names(), default_value = policy::CHOOSER)]
    policy: String,

    /// Parameter of the policy
    #[arg(long = "parameter", value_name = "NAME=VALUE", value_parser = parameter)]
    parameters: Vec<(String, String)>,

    /// Limit of bytes migrated per second for a process, such as 1GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    bytes_per_second: Option<u64>,

    /// Limit of bytes migrated over the life of a process
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    bytes: Option<u64>,

    /// Precedence: of the overrides that match a process, the highest is selected
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    priority: i32,

    /// Time of expiry: after a time such as 2h, or at one such as 2027-01-01T00:00:00Z
    #[arg(long, value_name = "TIME", value_parser = expiry)]
    expires: Option<SystemTime>,

    /// Name of the override [default: derived from the selection]
    #[arg(long)]
    id: Option<String>,
}

#[derive(Debug, Args)]
#[command(mut_arg("all", |all| all.help("Every override, whatever it matches").conflicts_with_all(["range", "larger_than"])))]
pub(crate) struct UnsetOptions {
    /// Name of the override
    #[arg(required_unless_present = "selection", conflicts_with = "selection", value_parser = resource::r#override, add = completion::overrides())]
    id: Option<String>,

    #[command(flatten)]
    selection: Option<Selection>,
}

#[derive(Debug, Args)]
pub(crate) struct ExplainOptions {
    /// Process
    #[arg(value_parser = resource::process, add = completion::processes())]
    pid: u32,

    /// Start time of the process in clock ticks since boot [default: the running process, else the
    /// last one]
    #[arg(long, value_name = "TICKS")]
    start_ticks: Option<u64>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeName {
    Observe,
    Shadow,
    Act,
}

impl From<ModeName> for Mode {
    fn from(name: ModeName) -> Self {
        match name {
            ModeName::Observe => Self::Observe,
            ModeName::Shadow => Self::Shadow,
            ModeName::Act => Self::Act,
        }
    }
}

pub(crate) fn run(client: &Client, options: Options, output: &output::Options) -> anyhow::Result<()> {
    if !matches!(options, Options::Show | Options::Explain(_)) {
        output.once()?;
    }
    match options {
        Options::Show => output.show(client, &mut List),
        Options::Set(options) => set(client, *options, output),
        Options::Unset(options) => unset(client, *options, output),
        Options::Apply(options) => apply::run(client, &options, output),
        Options::Export(options) => export::run(client, &options, output),
        Options::Explain(options) => output.show(client, &mut Effective(options)),
        Options::Off => switch(client, "off", output),
        Options::On => switch(client, "on", output),
    }
}

const OVERRIDES: &str = "/api/v1/overrides";
const POLICY: &str = "/api/v1/policy";

/// The view of the overrides and the switch.
struct List;

impl List {
    fn path() -> String {
        format!("{OVERRIDES}?limit={PAGE}")
    }
}

impl View for List {
    fn page(&mut self, client: &Client, Screen { colour, .. }: Screen) -> anyhow::Result<Page> {
        let known = client.list::<Overrides>(&Self::path())?;
        let state = client.get::<PolicyState>(POLICY)?.body;
        let now = client.get::<Status>("/api/v1/status")?.body.time;
        Ok(show::page(&known, &state, &now, colour))
    }

    fn json(&mut self, client: &Client, out: &mut dyn Write) -> anyhow::Result<()> {
        client.pass_on(&Self::path(), &Self::path(), "overrides", out)
    }

    fn columns(&self) -> Vec<String> {
        show::table(&[], "").column_names()
    }
}

/// The view of the policy in effect for a process.
struct Effective(ExplainOptions);

impl Effective {
    fn path(&self) -> String {
        explain::path(self.0.pid, self.0.start_ticks, "/override")
    }
}

impl View for Effective {
    fn page(&mut self, client: &Client, Screen { colour, .. }: Screen) -> anyhow::Result<Page> {
        let effective = client.get::<EffectivePolicy>(&self.path())?.body;
        Ok(Page::text(show::effective(&effective, colour)).named(Kind::Process.named(effective.pid)))
    }

    fn json(&mut self, client: &Client, out: &mut dyn Write) -> anyhow::Result<()> {
        client.pass_on_one::<EffectivePolicy>(&self.path(), out)
    }
}

fn set(client: &Client, options: SetOptions, output: &output::Options) -> anyhow::Result<()> {
    let SetOptions { selection, mode, policy, parameters, bytes_per_second, bytes, priority, expires, id } = options;
    let selector = Selector::from(selection);
    let id = id.unwrap_or_else(|| selection::name(&selector));
    let rule = Override {
        id: None,
        selector,
        mode: Mode::from(mode).name().to_owned(),
        policy: Some(policy),
        parameters: parameters.into_iter().collect::<BTreeMap<_, _>>(),
        budget: Budget { bytes_per_second, bytes },
        priority,
        expires_at: expires.map(time),
    };
    let body = serde_json::to_string(&rule)?;
    let response = client.change(&Method::PUT, &path(&id), Some(&body))?;
    let status: OverrideStatus = serde_json::from_str(&response).context("the response is not uvmd's")?;
    let matches = show::matches(&status).map(|matches| format!("; {matches}")).unwrap_or_default();
    let text = format!("{}: {}{matches}", text::printable(&id), show::description(&status.r#override));
    output.report(&text, &response, &Kind::Override.named(&id))?;
    let state = client.get::<PolicyState>(POLICY)?.body;
    if let (ModeName::Act, Some(reason)) = (mode, show::inactive_reason(&state)) {
        terminal::note(&format!("the override has no effect yet: {reason}"));
    }
    Ok(())
}

fn unset(
    client: &Client,
    UnsetOptions { id, selection }: UnsetOptions,
    output: &output::Options,
) -> anyhow::Result<()> {
    let ids = match (id, selection) {
        (Some(id), _) => vec![id],
        (None, Some(selection)) => selected(client, selection)?,
        (None, None) => bail!("an id or a selection is required"),
    };
    let mut deleted = Vec::with_capacity(ids.len());
    let is_one = ids.len() == 1;
    let result = ids.iter().try_for_each(|id| {
        match client.change(&Method::DELETE, &path(id), None) {
            // Of several, one may have expired since they were listed.
            Err(Error::NotFound { .. }) if !is_one => return Ok(()),
            answer => answer?,
        };
        deleted.push(Kind::Override.named(id));
        Ok(())
    });
    if !deleted.is_empty() {
        let text: Vec<String> = deleted.iter().map(|name| format!("{name} deleted")).collect();
        output.report(&text.join("\n"), "null", &deleted.join("\n"))?;
    }
    result
}

/// Ids of the overrides of the API with this selection, whatever their names; with `--all`, of all.
fn selected(client: &Client, selection: Selection) -> anyhow::Result<Vec<String>> {
    let is_all = selection.all;
    let selector = Selector::from(selection);
    let known = client.list::<Overrides>(&List::path())?.overrides;
    // The API fills in which process of an id is meant.
    let is_selected = |each: &Override| is_all || Selector { start_ticks: None, ..each.selector.clone() } == selector;
    let (mut of_api, of_files): (Vec<_>, Vec<_>) =
        known.into_iter().filter(|each| is_selected(&each.r#override)).partition(|each| each.source == "api");
    // Those that act first: without an exclusion, they may act on what it excluded.
    of_api.sort_by_key(|each| ["act", "shadow"].iter().position(|mode| *mode == each.r#override.mode).unwrap_or(2));
    if of_api.is_empty() && !is_all {
        bail!("no override of the API has this selection: uvmctl policy show lists the overrides");
    }
    if is_all && of_api.is_empty() {
        terminal::note("the API has no overrides");
    }
    if !of_files.is_empty() {
        let ids: Vec<_> = of_files.into_iter().filter_map(|each| each.r#override.id).collect();
        terminal::note(&format!("not deleted, as a file of uvmd has it: {}", text::printable(&ids.join(", "))));
    }
    Ok(of_api.into_iter().filter_map(|each| each.r#override.id).collect())
}

fn switch(client: &Client, to: &str, output: &output::Options) -> anyhow::Result<()> {
    let response = client.change(&Method::POST, &format!("{POLICY}/{to}"), None)?;
    let state: PolicyState = serde_json::from_str(&response).context("the response is not uvmd's")?;
    let state_line = show::inactive_reason(&state).unwrap_or_else(|| "uvmd may act".to_owned());
    let lines: Vec<String> = [state_line].into_iter().chain(show::persist_pending(&state)).collect();
    output.report(&lines.join("\n"), &response, "policy")
}

/// Whether uvmd may act; `None` if this uvmd has no such state.
pub(crate) fn acting(client: &Client) -> Result<Option<bool>, Error> {
    match client.get::<PolicyState>(POLICY) {
        Ok(state) => Ok(Some(state.body.active)),
        Err(Error::NotFound { .. } | Error::Denied { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Path of an override.
fn path(id: &str) -> String {
    format!("{OVERRIDES}/{}", encoded(id))
}

/// Policies of the registry with their help. Control policies are accepted, and hidden from the
/// help.
fn policy_names() -> PossibleValuesParser {
    let value = |policy: &policy::Policy| {
        PossibleValue::new(policy.name).help(policy.help).hide(policy.choice == policy::Choice::Control)
    };
    PossibleValuesParser::new(policy::POLICIES.iter().map(value))
}

fn parameter(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Parses a duration from now, or an RFC 3339 time.
fn expiry(text: &str) -> Result<SystemTime, String> {
    if let Ok(after) = humantime::parse_duration(text) {
        return SystemTime::now().checked_add(after).ok_or_else(|| format!("{text:?} is out of range"));
    }
    parse_time(text).map_err(|_| format!("{text:?} is neither a time such as 2h nor one such as 2027-01-01T00:00:00Z"))
}

/// Id percent-encoded as a path segment; the daemon reports invalid ids.
fn encoded(id: &str) -> impl fmt::Display {
    const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(id, RESERVED)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn expiry_is_a_duration_or_a_time() {
        let in_two_hours = expiry("2h").unwrap().duration_since(SystemTime::now()).unwrap();
        assert!((Duration::from_secs(7190)..=Duration::from_hours(2)).contains(&in_two_hours), "{in_two_hours:?}");
        assert_eq!(expiry("2027-01-01T00:00:00Z").map(time).unwrap(), "2027-01-01T00:00:00.000Z");
        assert!(expiry("tomorrow").is_err());
    }

    #[test]
    fn names_are_encoded_in_paths() {
        assert_eq!(encoded("pod-7c1f.x").to_string(), "pod-7c1f.x");
        assert_eq!(encoded("a/../b?c d").to_string(), "a%2F..%2Fb%3Fc%20d");
    }
}
