//! Load of a [`Config`] from a file and settings.

use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
    str::FromStr,
};

use serde::Deserialize;
use toml::{
    Table, Value,
    de::{DeTable, DeValue},
};

use crate::{
    Config, DEFAULT_FILE, FRAGMENTS,
    error::{ConfigError, Mistake, SettingError},
    fragments::{self, Fragment},
    read::read,
    value::{AbsolutePath, Value as _},
};

/// Configuration and its source.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// Configuration in effect.
    pub config: Config,
    /// File that was read; `None` if there is none.
    pub file: Option<PathBuf>,
    /// Fragments that were read, each of which overrides those before it and the file.
    pub fragments: Vec<PathBuf>,
}

impl Loaded {
    /// Source files, separated by commas; `None` if there are none.
    #[must_use]
    pub fn names(&self) -> Option<String> {
        let names: Vec<_> = self.file.iter().chain(&self.fragments).map(|file| file.display().to_string()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }
}

/// Option that overrides the file: `log.format=json`.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting(Table);

impl FromStr for Setting {
    type Err = SettingError;

    /// Parses the value as in the file; quotes around text are optional.
    fn from_str(text: &str) -> Result<Self, SettingError> {
        let (key, value) = text.split_once('=').ok_or(SettingError::Form)?;
        if !is_key(key) || value.contains('\n') {
            return Err(SettingError::Form);
        }
        let setting = |value: &str| {
            let line = format!("{key}={value}");
            parse(&line).and_then(|_| line.parse::<Table>().map_err(|error| mistake(&line, &error)))
        };
        // An invalid value may be text that looks like another type: a name of digits, an address
        // in brackets.
        let quoted = || setting(&Value::String(value.to_owned()).to_string());
        let mistake = match setting(value) {
            Ok(table) => return Ok(Self(table)),
            Err(mistake) => mistake,
        };
        // If neither is valid, it counts as text only if it is no other value.
        quoted().map(Self).map_err(|as_text| {
            SettingError::Value(if mistake.key.is_some() { mistake.message } else { as_text.message })
        })
    }
}

/// Whether this has the form of a key: words and dots.
fn is_key(key: &str) -> bool {
    let is_word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    key.split('.').all(is_word)
}

/// Reads `file`, or [`DEFAULT_FILE`] if none is given and that exists. The fragments in
/// [`FRAGMENTS`] beside it override it, each those before it, and the settings override them.
///
/// # Errors
/// See [`ConfigError`].
pub fn load(file: Option<&Path>, settings: &[Setting]) -> Result<Loaded, ConfigError> {
    let Source { file, main, fragments } = Source::read(file)?;
    let name = file.unwrap_or(Path::new(DEFAULT_FILE));
    let of = |file: &Path, mistake| ConfigError::File { file: file.into(), mistake };
    let mut config = parse(&main).map_err(|mistake| of(name, mistake))?;
    if !fragments.is_empty() || !settings.is_empty() {
        let mut table = table(&main).map_err(|mistake| of(name, mistake))?;
        for Fragment { file, text } in &fragments {
            let part = parse(text).and_then(|_| self::table(text)).map_err(|mistake| of(file, mistake))?;
            merge(&mut table, &part);
        }
        for Setting(setting) in settings {
            merge(&mut table, setting);
        }
        // Each part was valid alone.
        config = Config::deserialize(table).map_err(|error| of(name, mistake("", &error)))?;
    }
    Ok(Loaded {
        config,
        file: file.map(Into::into),
        fragments: fragments.into_iter().map(|fragment| fragment.file).collect(),
    })
}

/// State folder of `policy.state_dir`, despite mistakes in other options.
///
/// # Errors
/// If there are mistakes, and the folder is unknown: no setting has it, and a file cannot be read
/// or is not TOML, or its value is not a path.
pub fn state_dir(file: Option<&Path>, settings: &[Setting]) -> Result<PathBuf, ConfigError> {
    match load(file, settings) {
        Ok(loaded) => Ok(loaded.config.policy.state_dir.0),
        Err(error) => state_dir_alone(Source::read(file).ok(), settings).ok_or(error),
    }
}

fn state_dir_alone(source: Option<Source<'_>>, settings: &[Setting]) -> Option<PathBuf> {
    let in_table = |table: &Table| table.get("policy")?.get("state_dir").cloned();
    let of_settings = settings.iter().rev().find_map(|Setting(table)| in_table(table));
    let of_files = || {
        let Source { main, fragments, .. } = source?;
        let texts = [main].into_iter().chain(fragments.into_iter().map(|fragment| fragment.text));
        // Any of them may set it.
        let tables: Vec<Table> = texts.map(|text| text.parse().ok()).collect::<Option<_>>()?;
        let default = || Value::String(Config::default().policy.state_dir.0.display().to_string());
        Some(tables.iter().rev().find_map(in_table).unwrap_or_else(default))
    };
    let value = of_settings.or_else(of_files)?;
    Some(AbsolutePath::of_text(value.as_str()?)?.0)
}

/// File and its fragments.
struct Source<'a> {
    /// `None` if none is given and the default one does not exist.
    file: Option<&'a Path>,
    main: String,
    fragments: Vec<Fragment>,
}

impl<'a> Source<'a> {
    fn read(file: Option<&'a Path>) -> Result<Self, ConfigError> {
        let default = Path::new(DEFAULT_FILE);
        let name = file.unwrap_or(default);
        let (file, main) = match read(name) {
            // A dangling link is a mistake, unlike a missing file.
            Err(error) if file.is_none() && error.kind() == io::ErrorKind::NotFound && !default.is_symlink() => {
                (None, String::new())
            }
            text => (Some(name), text.map_err(|source| ConfigError::Unreadable { file: name.into(), source })?),
        };
        let fragments = fragments::read(name, main.len(), FRAGMENTS, &[".toml"])?;
        Ok(Self { file, main, fragments })
    }
}

fn table(text: &str) -> Result<Table, Mistake> {
    text.parse().map_err(|error| mistake(text, &error))
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

/// Parses the text of a file, over the defaults.
///
/// # Errors
/// First mistake in it.
pub fn parse(text: &str) -> Result<Config, Mistake> {
    toml::from_str(text).map_err(|error| mistake(text, &error))
}

pub(crate) fn mistake(text: &str, error: &toml::de::Error) -> Mistake {
    let at = error.span().unwrap_or_default();
    let line = line_at(text, at.start);
    let key = DeTable::parse(text).ok().and_then(|table| key_at(table.get_ref(), &at));
    // Serde's messages name Rust structures instead of tables and keys.
    let message = error.message().replacen("unknown field", "unknown key", 1);
    let message = match message.split_once("expected struct ") {
        Some((before, _)) => format!("{before}expected a table"),
        None => message,
    };
    Mistake { line, key, message: message.replace('\n', ", ") }
}

/// Line of a position, counted from 1.
pub(crate) fn line_at(text: &str, place: usize) -> usize {
    1 + text.get(..place).unwrap_or(text).matches('\n').count()
}

/// Key at a position in the text, with its tables.
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
