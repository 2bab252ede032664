//! Instances of dynamic storage allocation in the format of MiniMalloc: CSV with the columns `id`,
//! `lower`, `upper`, `size`, in any order. A block is alive at steps `lower`, ..., `upper - 1`. Ids
//! are any text; [`Span::source`](trace::Span::source) is the number of the block in the file, from
//! 0.

use std::{io::BufRead, path::Path};

use super::{
    error::{ImportError, Reason},
    text::{self, Lines, fields, number},
};
use trace::circle::Circle;

const COLUMNS: [&str; 4] = ["id", "lower", "upper", "size"];

/// Reads an instance.
///
/// # Errors
/// If the file cannot be read or is invalid: with the line.
pub fn load(path: &Path) -> Result<Circle, ImportError> {
    parse(path, text::open(path)?)
}

/// Reads an instance from text; `path` is for messages.
///
/// # Errors
/// If the text is invalid: with the line.
pub fn parse(path: &Path, text: impl BufRead) -> Result<Circle, ImportError> {
    let mut lines = Lines::new(path, text);
    let header = lines.next()?.map(order).ok_or(Reason::Empty);
    let order = header.and_then(|order| order).map_err(|reason| lines.error(reason))?;
    let mut blocks = Vec::new();
    while let Some(line) = lines.next()? {
        let block = block(line, order, blocks.len() as u64).map_err(|reason| lines.error(reason))?;
        blocks.push(block);
    }
    Circle::of_intervals(blocks).map_err(|invalid| ImportError::new(path, None, invalid))
}

/// Position of each of [`COLUMNS`].
fn order(header: &str) -> Result<[usize; 4], Reason> {
    let columns: Vec<_> = header.split(',').map(str::trim).collect();
    if let Some(unknown) = columns.iter().find(|column| !COLUMNS.contains(column)) {
        return Err(Reason::UnknownColumn { column: unknown.chars().take(40).collect() });
    }
    let mut order = [0; 4];
    for (position, column) in order.iter_mut().zip(COLUMNS) {
        *position = columns.iter().position(|&name| name == column).ok_or(Reason::MissingColumn { column })?;
    }
    if columns.len() == COLUMNS.len() {
        Ok(order)
    } else {
        Err(Reason::FieldCount { expected: 4, found: columns.len() })
    }
}

/// Block of a line: (number, first step, one past the last step, bytes).
fn block(line: &str, order: [usize; 4], source: u64) -> Result<(u64, u64, u64, u64), Reason> {
    let fields: [&str; 4] = fields(line.split(','))?;
    let at = |position: usize| fields.get(position).copied().unwrap_or_default();
    let [_, lower, upper, size] = order;
    let (lower, upper, bytes) = (number("lower", at(lower))?, number("upper", at(upper))?, number("size", at(size))?);
    // Validated here, where the line is known.
    Circle::of_intervals([(source, lower, upper, bytes)])?;
    Ok((source, lower, upper, bytes))
}
