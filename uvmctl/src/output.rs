//! Output of all commands that show a view: form, order and repetition.
//!
//! A command only implements [`View`].
//!
//! * `view`: views and pages
//! * `cell`, `table`: lists
//! * `yaml`: conversion of JSON to YAML
//! * `watch`: repetition, for `--watch`

pub(crate) mod cell;
pub(crate) mod table;
mod view;
mod watch;
mod yaml;

use std::{
    io::{self, Write},
    path::PathBuf,
    time::Duration,
};

use clap::{Args, ValueEnum};
use view::Body;
pub(crate) use view::{Page, Screen, View};
use watch::Frame;
pub(crate) use watch::end_on_signals;
use yaml::Buffer;

use crate::{client::Client, rates, text};

/// Options of every command that shows a view.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
#[group(skip)]
pub(crate) struct Options {
    /// Form of the output
    #[arg(long = "output", short = 'o', global = true, value_name = "FORMAT", value_enum, default_value_t)]
    format: Format,

    /// Omit the headings of columns
    #[arg(long, global = true)]
    no_headers: bool,

    /// Sort a list by this column: amounts from the largest, names and ids from the smallest.
    /// -COLUMN reverses that
    #[arg(long, global = true, value_name = "COLUMN", allow_hyphen_values = true)]
    sort_by: Option<String>,

    /// Repeat the output at this interval in seconds (2 by default), in place on a terminal, until
    /// interrupted
    #[arg(
        long,
        short = 'w',
        global = true,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2",
        value_parser = rates::interval
    )]
    watch: Option<Duration>,
}

/// Form of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// Table or text that fits the terminal
    #[default]
    Table,
    /// The same with more columns, however narrow the terminal is
    Wide,
    /// Response of uvmd as JSON
    Json,
    /// Response of uvmd as YAML
    Yaml,
    /// Names alone, such as process/1234, which other commands take
    Name,
}

/// Error in the use of the options.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(String);

impl UsageError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl Options {
    /// Shows a view in the selected form.
    pub(crate) fn show(&self, client: &Client, view: &mut impl View) -> anyhow::Result<()> {
        let order = self.order(view)?;
        let screen = Screen::detect();
        match self.watch {
            Some(interval) => watch::run(interval, || self.frame(client, view, order.as_ref(), screen)),
            // A long list is written page by page.
            None if self.format == Format::Json => view.json(client, &mut io::stdout().lock()),
            None => Ok(self.frame(client, view, order.as_ref(), screen)?.print()?),
        }
    }

    /// Prints the result of a change, after [`Options::once`].
    pub(crate) fn report(&self, text: &str, json: &str, name: &str) -> anyhow::Result<()> {
        let text = match self.format {
            Format::Table | Format::Wide => text.to_owned() + "\n",
            Format::Json => text::printable_json(json).into_owned() + "\n",
            Format::Yaml => yaml(json)?,
            Format::Name => text::printable_lines(name) + "\n",
        };
        Ok(io::stdout().lock().write_all(text.as_bytes())?)
    }

    /// Returns the form, for a command without sorting or repetition. Called before the command
    /// acts.
    pub(crate) fn once(&self) -> Result<Format, UsageError> {
        self.reject_repetition()?;
        Ok(self.format)
    }

    /// Rejects all of these options, for a command with a separate form of output.
    pub(crate) fn reject(&self, command: &str) -> Result<(), UsageError> {
        if self.format != Format::default() {
            return Err(UsageError(format!("--output does not apply to {command}")));
        }
        self.reject_repetition()
    }

    /// File of the JSON report of a command that reports by itself: `-o json` is short for `--json -`.
    pub(crate) fn report_file(&self, command: &str, file: Option<PathBuf>) -> Result<Option<PathBuf>, UsageError> {
        self.reject_repetition()?;
        match (self.format, file) {
            (Format::Table, file) => Ok(file),
            (Format::Json, None) => Ok(Some("-".into())),
            (Format::Json, Some(_)) => Err(UsageError("--json FILE and --output json exclude each other".to_owned())),
            _ => Err(UsageError(format!("--output of {command} is table or json"))),
        }
    }

    fn reject_repetition(&self) -> Result<(), UsageError> {
        let given = [
            ("--no-headers", self.no_headers),
            ("--sort-by", self.sort_by.is_some()),
            ("--watch", self.watch.is_some()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => Err(UsageError(format!("{option} applies to commands that show something once"))),
            None => Ok(()),
        }
    }

    /// Sort column, if one is given, and whether its order is reversed.
    fn order(&self, view: &impl View) -> Result<Option<(String, bool)>, UsageError> {
        let columns = view.columns();
        if self.format == Format::Name && !view.has_names() {
            return Err(UsageError("--output name does not apply: nothing here has a name".to_owned()));
        }
        if self.no_headers && columns.is_empty() {
            return Err(UsageError("--no-headers applies to lists".to_owned()));
        }
        let Some(column) = &self.sort_by else { return Ok(None) };
        if columns.is_empty() {
            return Err(UsageError("--sort-by applies to lists".to_owned()));
        }
        if matches!(self.format, Format::Json | Format::Yaml) {
            return Err(UsageError("--sort-by applies to --output table, wide and name".to_owned()));
        }
        let (name, is_reversed) = column.strip_prefix('-').map_or((column.as_str(), false), |name| (name, true));
        let name = name.to_lowercase();
        // A rate also matches by the name of its counter, unless that has a column.
        let names = [name.clone(), name + "/s"];
        if let Some(name) = names.into_iter().find(|name| columns.contains(name)) {
            return Ok(Some((name, is_reversed)));
        }
        let column = text::printable(column);
        Err(UsageError(format!("there is no column {column:?} to sort by: {}", columns.join(", "))))
    }

    fn frame(
        &self,
        client: &Client,
        view: &mut impl View,
        order: Option<&(String, bool)>,
        screen: Screen,
    ) -> anyhow::Result<Frame> {
        let text = match self.format {
            Format::Json => {
                let mut json = Vec::new();
                view.json(client, &mut json)?;
                String::from_utf8_lossy(&json).into_owned()
            }
            Format::Yaml => {
                let mut buffer = Buffer::default();
                view.json(client, &mut buffer)?;
                buffer.into_yaml()?
            }
            Format::Table | Format::Wide | Format::Name => {
                let page = view.page(client, screen)?;
                return Ok(self.drawn(page, order, screen));
            }
        };
        Ok(Frame { text, notes: Vec::new() })
    }

    fn drawn(&self, page: Page, order: Option<&(String, bool)>, screen: Screen) -> Frame {
        let Page { body, names, notes } = page;
        let lines = |names: &[String]| names.iter().flat_map(|name| [name.as_str(), "\n"]).collect();
        let text = match (body, self.format) {
            (Body::List { heading, mut table, concessions }, format) => {
                if let Some((column, is_reversed)) = order {
                    table.sort(column, *is_reversed);
                }
                if format == Format::Name {
                    return Frame { text: lines(table.names()), notes: Vec::new() };
                }
                let table = if self.no_headers { table.without_headings() } else { table };
                let table = match format {
                    Format::Wide => table,
                    _ => table.narrow().fit(screen.width, concessions),
                };
                heading + &table.render(screen.colour)
            }
            (_, Format::Name) => return Frame { text: lines(&names), notes: Vec::new() },
            (Body::Text(text), _) => text,
            (Body::Nothing, _) => String::new(),
        };
        Frame { text, notes }
    }
}

/// Prints text that is already escaped.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    Ok(io::stdout().lock().write_all(text.as_bytes())?)
}

/// Converts JSON to YAML.
pub(crate) fn yaml(json: &str) -> anyhow::Result<String> {
    let mut buffer = Buffer::default();
    buffer.write_all(json.as_bytes())?;
    buffer.into_yaml()
}
