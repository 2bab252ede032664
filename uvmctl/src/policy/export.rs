//! `uvmctl policy export`: overrides in the form of files.

use anyhow::bail;
use api::rule::{Override, Overrides};
use clap::Args;
use config::overrides::{Form, write};

use super::List;
use crate::{
    client::Client,
    completion,
    output::{self, Format, UsageError},
    resource, terminal, text,
};

#[derive(Debug, Args)]
pub(crate) struct ExportOptions {
    /// Names of overrides [default: those of the API]
    #[arg(value_parser = resource::r#override, add = completion::overrides())]
    ids: Vec<String>,

    /// Include the overrides of uvmd's files
    #[arg(long, conflicts_with = "ids")]
    all: bool,
}

/// Writes overrides as TOML, or as JSON with `--output json`. Expired overrides, which uvmd would
/// reject, are named on standard error.
pub(super) fn run(client: &Client, options: &ExportOptions, output: &output::Options) -> anyhow::Result<()> {
    let form = match output.once()? {
        Format::Table => Form::Toml,
        Format::Json => Form::Json,
        _ => bail!(UsageError::new("--output of policy export is table, for TOML, or json")),
    };
    let known = client.list::<Overrides>(&List::path())?.overrides;
    let id = |each: &Override| each.id.clone().unwrap_or_default();
    if let Some(missing) =
        options.ids.iter().find(|requested| !known.iter().any(|each| id(&each.r#override) == **requested))
    {
        bail!("there is no override {missing:?}");
    }
    let mut exported = Vec::new();
    for status in known {
        let is_selected = match options.ids.as_slice() {
            [] => options.all || status.source == "api",
            ids => ids.contains(&id(&status.r#override)),
        };
        match (is_selected, status.expired) {
            (true, true) => terminal::note(&format!("expired, and not exported: {}", id(&status.r#override))),
            (true, false) => exported.push(status.r#override),
            (false, _) => {}
        }
    }
    let file = write(&exported, form)?;
    let printable = match form {
        Form::Json => text::printable_json(&file).into_owned(),
        // TOML has no escapes in some of its strings.
        Form::Toml => text::printable_lines(&file),
    };
    if form == Form::Toml && printable != file {
        bail!("an override has characters that are not printable: export it with --output json");
    }
    output::print(&printable)
}
