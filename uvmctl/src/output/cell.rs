//! Cells of a table: text and sort key.

use std::{cmp::Ordering, time::Duration};

use api::{GpuId, Reuse};

use crate::{rates, text, words};

/// Text of a cell with its sort key.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) text: String,
    key: Key,
}

/// Sort key. An unknown value comes last in either direction.
#[derive(Clone, Debug)]
enum Key {
    /// Largest first.
    Amount(f64),
    /// Smallest first: a number that identifies or ranks something.
    Ordinal(i64),
    /// In alphabetical order.
    Text(String),
    Unknown,
}

impl Cell {
    /// Unknown value, shown as a dash.
    pub(crate) fn unknown() -> Self {
        Self { text: "-".to_owned(), key: Key::Unknown }
    }

    pub(crate) const fn is_unknown(&self) -> bool {
        matches!(self.key, Key::Unknown)
    }

    /// Text; a dash without one.
    pub(crate) fn optional(text: Option<impl Into<String>>) -> Self {
        text.map_or_else(Self::unknown, |text| text.into().into())
    }

    /// Count or bytes.
    pub(crate) fn amount(value: u64, shown: rates::Formatter) -> Self {
        Self { text: shown(value), key: Key::Amount(value as f64) }
    }

    /// Count or bytes; a dash if unknown.
    pub(crate) fn known(value: Option<u64>, shown: rates::Formatter) -> Self {
        value.map_or_else(Self::unknown, |value| Self::amount(value, shown))
    }

    /// Rate per second; a dash if unknown.
    pub(crate) fn rate(rate: Option<f64>, shown: rates::Formatter) -> Self {
        rate.map_or_else(Self::unknown, |value| Self { text: rates::per_second(rate, shown), key: Key::Amount(value) })
    }

    /// Age; a dash if unknown.
    pub(crate) fn age(age: Option<Duration>) -> Self {
        age.map_or_else(Self::unknown, |age| Self::shown_as(words::clock(age), Some(age.as_secs_f64())))
    }

    /// Share of a total; a dash if the total is 0.
    pub(crate) fn share(part: u64, whole: u64) -> Self {
        if whole == 0 {
            return Self::unknown();
        }
        Self { text: text::share(part, whole), key: Key::Amount(part as f64 / whole as f64) }
    }

    /// Refetched share of fetched bytes; a dash if unknown.
    pub(crate) fn refetched(reuse: Option<Reuse>) -> Self {
        reuse.map_or_else(Self::unknown, |reuse| Self::share(reuse.refetched_bytes, reuse.fetched_bytes))
    }

    /// Number that identifies or ranks something.
    pub(crate) fn ordinal(number: impl Into<i64>) -> Self {
        let number = number.into();
        Self { text: number.to_string(), key: Key::Ordinal(number) }
    }

    /// GPU; see [`text::gpu`].
    pub(crate) fn gpu(id: &GpuId) -> Self {
        id.gpu.map_or_else(|| text::gpu(id).into(), Self::ordinal)
    }

    /// Text with an amount as its sort key.
    pub(crate) fn shown_as(text: String, amount: Option<f64>) -> Self {
        Self { text, key: amount.map_or(Key::Unknown, Key::Amount) }
    }

    /// Order of two cells of a column.
    pub(crate) fn compare(&self, other: &Self, is_reversed: bool) -> Ordering {
        let order = match (&self.key, &other.key) {
            (Key::Unknown, Key::Unknown) => return Ordering::Equal,
            (Key::Unknown, _) => return Ordering::Greater,
            (_, Key::Unknown) => return Ordering::Less,
            (Key::Amount(one), Key::Amount(other)) => other.total_cmp(one),
            (Key::Ordinal(one), Key::Ordinal(other)) => one.cmp(other),
            (Key::Text(one), Key::Text(other)) => one.cmp(other),
            _ => self.text.cmp(&other.text),
        };
        if is_reversed { order.reverse() } else { order }
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        let key = if text == "-" { Key::Unknown } else { Key::Text(text.clone()) };
        Self { text, key }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(mut cells: Vec<Cell>, is_reversed: bool) -> Vec<String> {
        cells.sort_by(|one, other| one.compare(other, is_reversed));
        cells.into_iter().map(|cell| cell.text).collect()
    }

    #[test]
    fn amounts_sort_by_value() {
        let cells = || vec![Cell::amount(900, text::bytes), Cell::amount(8 << 30, text::bytes), Cell::unknown()];
        assert_eq!(sorted(cells(), false), ["8.0 GiB", "900 B", "-"]);
        assert_eq!(sorted(cells(), true), ["900 B", "8.0 GiB", "-"]);
    }

    #[test]
    fn names_and_ordinals_sort_in_ascending_order() {
        assert_eq!(sorted(vec![Cell::ordinal(100_u32), Cell::ordinal(9_u32)], false), ["9", "100"]);
        let text = |text: &str| Cell::from(text.to_owned());
        assert_eq!(sorted(vec![text("b"), text("-"), text("a")], false), ["a", "b", "-"]);
    }
}
