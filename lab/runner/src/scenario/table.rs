//! TOML tables whose keys are consumed one by one. A key that remains is an error.

use std::{collections::BTreeMap, ops::Range};

use serde::{Deserialize, de::IntoDeserializer};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Error in a scenario file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Byte range in the file; `None` until an enclosing table sets the range.
    pub(crate) span: Option<Range<usize>>,
    /// Subject of the message; `None` until an enclosing table sets the subject.
    pub(crate) subject: Option<String>,
    pub(crate) reason: String,
}

/// A table, with the entries that are not consumed yet.
pub(crate) struct Table<'i> {
    span: Range<usize>,
    /// Byte range of each key's value, consumed or not.
    spans: BTreeMap<String, Range<usize>>,
    entries: BTreeMap<String, Spanned<DeValue<'i>>>,
}

// === impl Fault ===

impl Fault {
    /// Set the span and subject of a fault, unless an inner table has set them.
    pub(crate) fn within(self, span: &Range<usize>, subject: impl FnOnce() -> String) -> Self {
        let Self { span: inner_span, subject: inner_subject, reason } = self;
        Self {
            span: inner_span.or_else(|| Some(span.clone())),
            subject: inner_subject.or_else(|| Some(subject())),
            reason,
        }
    }
}

impl From<String> for Fault {
    fn from(reason: String) -> Self {
        Self { span: None, subject: None, reason }
    }
}

impl From<&str> for Fault {
    fn from(reason: &str) -> Self {
        reason.to_owned().into()
    }
}

// === impl Table ===

impl<'i> Table<'i> {
    /// Parse the root table of a file.
    pub(crate) fn parse(text: &'i str) -> Result<Self, Fault> {
        let table = DeTable::parse(text).map_err(|error| Fault { span: error.span(), ..one_line(&error).into() })?;
        let span = table.span();
        Ok(Self::new(span, table.into_inner()))
    }

    fn new(span: Range<usize>, table: DeTable<'i>) -> Self {
        let entries: BTreeMap<String, _> =
            table.into_iter().map(|(key, value)| (key.into_inner().into_owned(), value)).collect();
        let spans = entries.iter().map(|(key, value)| (key.clone(), value.span())).collect();
        Self { span, spans, entries }
    }

    pub(crate) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Fault in the value of a key.
    pub(crate) fn fault(&self, key: &str, reason: impl Into<String>) -> Fault {
        Fault { span: self.spans.get(key).cloned(), ..reason.into().into() }
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.entries.contains_key(key)
    }

    /// Consume a key's value, if present.
    pub(crate) fn take<T: Deserialize<'i>>(&mut self, key: &str) -> Result<Option<T>, Fault> {
        let Some(value) = self.entries.remove(key) else { return Ok(None) };
        let parsed = T::deserialize(value.into_deserializer());
        parsed.map(Some).map_err(|error| self.fault(key, format!("{key}: {}", one_line(&error))))
    }

    /// Consume the value of a required key.
    pub(crate) fn need<T: Deserialize<'i>>(&mut self, key: &str) -> Result<T, Fault> {
        self.take(key)?.ok_or_else(|| format!("{key} is missing").into())
    }

    /// Consume a key's list of tables; empty if the key is absent.
    pub(crate) fn tables(&mut self, key: &str) -> Result<Vec<Self>, Fault> {
        self.entries.remove(key).map_or_else(|| Ok(Vec::new()), |value| tables(key, value))
    }

    /// Consume a key's list of lists of tables; empty if the key is absent.
    pub(crate) fn lists_of_tables(&mut self, key: &str) -> Result<Vec<Vec<Self>>, Fault> {
        let Some(value) = self.entries.remove(key) else { return Ok(Vec::new()) };
        match value.into_inner() {
            DeValue::Array(lists) => lists.into_iter().map(|list| tables(key, list)).collect(),
            other => Err(format!("{key}: is {}, must be a list of lists of tables", other.type_str()).into()),
        }
    }

    /// Reject keys that were not consumed.
    pub(crate) fn finish(self, of: &str) -> Result<(), Fault> {
        match self.entries.keys().next().cloned() {
            None => Ok(()),
            Some(key) => Err(Fault { span: self.spans.get(&key).cloned(), ..format!("{of} takes no {key}").into() }),
        }
    }
}

fn tables<'i>(key: &str, value: Spanned<DeValue<'i>>) -> Result<Vec<Table<'i>>, Fault> {
    let table = |value: Spanned<DeValue<'i>>| {
        let span = value.span();
        match value.into_inner() {
            DeValue::Table(table) => Ok(Table::new(span, table)),
            other => {
                let reason = format!("{key}: is {}, must be a table {{ ... }}", other.type_str());
                Err(Fault { span: Some(span), ..reason.into() })
            }
        }
    };
    match value.into_inner() {
        DeValue::Array(values) => values.into_iter().map(table).collect(),
        other => Err(format!("{key}: is {}, must be a list of tables", other.type_str()).into()),
    }
}

fn one_line(error: &toml::de::Error) -> String {
    error.message().replace('\n', "; ")
}
