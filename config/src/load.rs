//! From a file and settings to a [`Config`].

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    ops::Range,
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::Deserialize;
use thiserror::Error;
use toml::{
    Table, Value,
    de::{DeTable, DeValue},
};

use crate::{
    Config, DEFAULT_FILE,
    value::{AbsolutePath, Value as _},
};

/// No file that people write is longer.
const FILE_MAX_BYTES: u64 = 1 << 20;

/// Why there is no configuration: one line that says where, and what is allowed.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}: {}", file.display(), sys::reason(source))]
    Unreadable {
        /// Which file.
        file: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file says something that is not allowed.
    #[error("{}:{mistake}", file.display())]
    File {
        /// Which file.
        file: PathBuf,
        /// What and where.
        mistake: Mistake,
    },
}

/// What is wrong in a text, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Counted from 1.
    pub line: usize,
    /// With its tables, such as `log.format`; `None` where the text is no TOML.
    pub key: Option<String>,
    /// What is wrong, and what is allowed.
    pub message: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, key, message } = self;
        match key {
            Some(key) => write!(f, "{line}: {key}: {message}"),
            None => write!(f, "{line}: {message}"),
        }
    }
}

/// A configuration, and where it is from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What is in force.
    pub config: Config,
    /// The file that was read; `None` where there was none to read.
    pub file: Option<PathBuf>,
}

/// One option that overrides the file's: `log.format=json`.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting(Table);

impl FromStr for Setting {
    type Err = String;

    /// The value as in the file; quotes around text may be left out.
    fn from_str(text: &str) -> Result<Self, String> {
        let expected = "expected KEY=VALUE, with a key as in the file, such as log.format";
        let (key, value) = text.split_once('=').ok_or(expected)?;
        if !is_key(key) || value.contains('\n') {
            return Err(expected.to_owned());
        }
        let setting = |value: &str| {
            let line = format!("{key}={value}");
            parse(&line).and_then(|_| line.parse::<Table>().map_err(|error| mistake(&line, &error)))
        };
        // What is no value of the option as it stands may be text that looks like another: a name of digits, an address in brackets.
        let quoted = || setting(&Value::String(value.to_owned()).to_string());
        let mistake = match setting(value) {
            Ok(table) => return Ok(Self(table)),
            Err(mistake) => mistake,
        };
        // Where neither is allowed, text is only meant where it is no other value.
        quoted().map(Self).map_err(|as_text| if mistake.key.is_some() { mistake.message } else { as_text.message })
    }
}

/// As every key of the file is: words and points.
fn is_key(key: &str) -> bool {
    let is_word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    key.split('.').all(is_word)
}

/// Reads `file`, or [`DEFAULT_FILE`] if none is named and that is there, and lets the settings override it.
///
/// # Errors
/// See [`ConfigError`].
pub fn load(file: Option<&Path>, settings: &[Setting]) -> Result<Loaded, ConfigError> {
    let (file, text) = text(file)?;
    let name = file.unwrap_or(Path::new(DEFAULT_FILE));
    let config = merged(&text, settings).map_err(|mistake| ConfigError::File { file: name.into(), mistake })?;
    Ok(Loaded { config, file: file.map(Into::into) })
}

/// The folder that `policy.state_dir` names, whatever mistakes there are in other options.
///
/// # Errors
/// If there are mistakes, and it cannot be told: no setting names it, and the file cannot be read, or is no TOML, or what it names is no folder.
pub fn state_dir(file: Option<&Path>, settings: &[Setting]) -> Result<PathBuf, ConfigError> {
    match load(file, settings) {
        Ok(loaded) => Ok(loaded.config.policy.state_dir.0),
        Err(error) => state_dir_alone(text(file).ok().map(|(_, text)| text), settings).ok_or(error),
    }
}

fn state_dir_alone(text: Option<String>, settings: &[Setting]) -> Option<PathBuf> {
    let in_table = |table: &Table| table.get("policy")?.get("state_dir").cloned();
    let of_settings = settings.iter().rev().find_map(|Setting(table)| in_table(table));
    let value = match of_settings {
        Some(value) => value,
        None => match in_table(&text?.parse().ok()?) {
            Some(value) => value,
            None => return Some(Config::default().policy.state_dir.0),
        },
    };
    Some(AbsolutePath::of_text(value.as_str()?)?.0)
}

/// What is in the file, with its name; nothing where none is named and the default one is not there.
fn text(file: Option<&Path>) -> Result<(Option<&Path>, String), ConfigError> {
    let default = Path::new(DEFAULT_FILE);
    match (file, read(file.unwrap_or(default))) {
        // A link that leads nowhere is a mistake, and not a file that nobody wrote.
        (None, Err(error)) if error.kind() == io::ErrorKind::NotFound && !default.is_symlink() => {
            Ok((None, String::new()))
        }
        (_, read) => {
            let file = file.unwrap_or(default);
            let text = read.map_err(|source| ConfigError::Unreadable { file: file.into(), source })?;
            Ok((Some(file), text))
        }
    }
}

fn merged(text: &str, settings: &[Setting]) -> Result<Config, Mistake> {
    let config = parse(text)?;
    if settings.is_empty() {
        return Ok(config);
    }
    let mut table = text.parse::<Table>().map_err(|error| mistake(text, &error))?;
    for Setting(setting) in settings {
        merge(&mut table, setting);
    }
    // Each part was fine by itself.
    Config::deserialize(table).map_err(|error| mistake("", &error))
}

fn merge(table: &mut Table, over: &Table) {
    for (key, value) in over {
        match (table.get_mut(key), value) {
            (Some(Value::Table(table)), Value::Table(over)) => merge(table, over),
            _ => {
                table.insert(key.clone(), value.clone());
            }
        }
    }
}

/// What a file says, over the defaults.
///
/// # Errors
/// The first mistake in it.
pub fn parse(text: &str) -> Result<Config, Mistake> {
    toml::from_str(text).map_err(|error| mistake(text, &error))
}

pub(crate) fn mistake(text: &str, error: &toml::de::Error) -> Mistake {
    let at = error.span().unwrap_or_default();
    let line = line_at(text, at.start);
    let key = DeTable::parse(text).ok().and_then(|table| key_at(table.get_ref(), &at));
    // Serde speaks of Rust's structures where the file has tables and keys.
    let message = error.message().replacen("unknown field", "unknown key", 1);
    let message = match message.split_once("expected struct ") {
        Some((before, _)) => format!("{before}expected a table"),
        None => message,
    };
    Mistake { line, key, message: message.replace('\n', ", ") }
}

/// Counted from 1.
pub(crate) fn line_at(text: &str, place: usize) -> usize {
    1 + text.get(..place).unwrap_or(text).matches('\n').count()
}

/// The key that a place in the text belongs to, with its tables.
fn key_at(table: &DeTable<'_>, at: &Range<usize>) -> Option<String> {
    table.iter().find_map(|(key, value)| {
        let inner = match value.get_ref() {
            DeValue::Table(table) => key_at(table, at),
            DeValue::Array(items) => items.iter().find_map(|item| key_at(item.get_ref().as_table()?, at)),
            _ => None,
        };
        let inner = inner.map(|inner| format!("{}.{inner}", key.get_ref()));
        let is_here = || key.span().contains(&at.start) || value.span().contains(&at.start);
        inner.or_else(|| is_here().then(|| key.get_ref().to_string()))
    })
}

pub(crate) fn read(file: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(FILE_MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => io::Error::other("it is not text in UTF-8"),
        _ => error,
    })?;
    if text.len() as u64 > FILE_MAX_BYTES {
        return Err(io::Error::other(format!("it is longer than {FILE_MAX_BYTES} bytes")));
    }
    Ok(text)
}
