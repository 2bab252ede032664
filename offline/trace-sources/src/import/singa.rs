//! Memory logs of SINGA, and of its forks from papers on memory.
//!
//! * memory log: `MALLOC: ADDRESS BYTES TIME` and `FREE: ADDRESS TIME`
//! * op trace: `Malloc|Free|Read|Mutable|Layer BLOCK BYTES TIME`, where BLOCK names an object of
//!   the framework and `Mutable` is a write. A `Layer` line marks the end of the previous layer,
//!   names no block and is omitted. A free requests the address of its block, which is logged as a
//!   `Mutable` right before the free. This is no use of the block and is omitted too.
//! * card log: `USED FREE TOTAL` in MiB, from cudaMemGetInfo after each line of the memory log
//! * detector's log: times in which the framework itself searched for iterations
//!
//! Times are nanoseconds by the machine's clock.

use std::{io::BufRead, path::Path};

use super::{
    error::{ImportError, Reason},
    text::{self, Lines, address, fields, number},
};
use trace::ops::{Block, OpStream, Recorder};

/// Reads a memory log.
///
/// # Errors
/// If the file cannot be read or is invalid: with the line.
pub fn load_log(path: &Path) -> Result<OpStream, ImportError> {
    parse_log(path, text::open(path)?)
}

/// Reads a memory log from text; `path` is for messages.
///
/// # Errors
/// If the text is invalid: with the line.
pub fn parse_log(path: &Path, text: impl BufRead) -> Result<OpStream, ImportError> {
    record(path, text, log_line)
}

fn log_line(recorder: &mut Recorder, line: &str) -> Result<(), Reason> {
    let mut words = line.split_ascii_whitespace();
    match words.next() {
        Some("MALLOC:") => {
            let [key, bytes, time] = fields(words)?;
            let address = address("address", key)?;
            let block = Block { bytes: number("bytes", bytes)?, address: Some(address) };
            recorder.malloc(number("time", time)?, address, block)?;
        }
        Some("FREE:") => {
            let [key, time] = fields(words)?;
            recorder.free(number("time", time)?, address("address", key)?)?;
        }
        other => return Err(Reason::field("operation", other.unwrap_or_default(), "MALLOC: or FREE:")),
    }
    Ok(())
}

/// Reads an op trace. The spans of a detector's log are cut out: later times are reduced by their
/// length.
///
/// # Errors
/// If the file cannot be read or is invalid: with the line.
pub fn load_ops(path: &Path, busy: &[Busy]) -> Result<OpStream, ImportError> {
    parse_ops(path, text::open(path)?, busy)
}

/// Reads an op trace from text; `path` is for messages.
///
/// # Errors
/// If the text is invalid: with the line.
pub fn parse_ops(path: &Path, text: impl BufRead, busy: &[Busy]) -> Result<OpStream, ImportError> {
    let mut cut = Cut { busy, removed_ns: 0 };
    record(path, text, |recorder, line| op_line(recorder, line, &mut cut))
}

fn op_line(recorder: &mut Recorder, line: &str, cut: &mut Cut<'_>) -> Result<(), Reason> {
    let [operation, key, bytes, time] = fields(line.split_ascii_whitespace())?;
    let time_ns = cut.apply(number("time", time)?);
    if operation == "Layer" {
        return Ok(());
    }
    let key = address("block", key)?;
    match operation {
        "Malloc" => recorder.malloc(time_ns, key, Block { bytes: number("bytes", bytes)?, address: None }).map(drop)?,
        "Free" => {
            recorder.undo_write(key);
            recorder.free(time_ns, key)?;
        }
        "Read" => recorder.read(time_ns, key)?,
        "Mutable" => recorder.write(time_ns, key)?,
        other => return Err(Reason::field("operation", other, "Malloc, Free, Read, Mutable or Layer")),
    }
    Ok(())
}

fn record(
    path: &Path,
    text: impl BufRead,
    mut record_line: impl FnMut(&mut Recorder, &str) -> Result<(), Reason>,
) -> Result<OpStream, ImportError> {
    let mut lines = Lines::new(path, text);
    let mut recorder = Recorder::default();
    while let Some(line) = lines.next()? {
        record_line(&mut recorder, line).map_err(|reason| lines.error(reason))?;
    }
    Ok(recorder.finish())
}

/// Span in which the framework searched for iterations instead of training.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// Begin.
    pub begin_ns: u64,
    /// End; not before the begin.
    pub end_ns: u64,
}

/// Removal of spans from times in increasing order.
struct Cut<'a> {
    /// Remaining spans, in order.
    busy: &'a [Busy],
    /// Sum of the spans removed so far.
    removed_ns: u64,
}

impl Cut<'_> {
    fn apply(&mut self, time_ns: u64) -> u64 {
        while let Some((first, rest)) = self.busy.split_first() {
            if time_ns < first.end_ns {
                // Within a span, the clock stops at its begin.
                return time_ns.min(first.begin_ns).saturating_sub(self.removed_ns);
            }
            self.removed_ns = self.removed_ns.saturating_add(first.end_ns - first.begin_ns);
            self.busy = rest;
        }
        time_ns.saturating_sub(self.removed_ns)
    }
}

/// Reads a detector's log: `BEGIN RepeatableTest: TIME`, `End RepeatableTest: TIME`, and lines with
/// the difference.
///
/// # Errors
/// If the file cannot be read or is invalid: with the line.
pub fn load_busy(path: &Path) -> Result<Vec<Busy>, ImportError> {
    parse_busy(path, text::open(path)?)
}

/// Reads a detector's log from text; `path` is for messages.
///
/// # Errors
/// If the text is invalid: with the line.
pub fn parse_busy(path: &Path, text: impl BufRead) -> Result<Vec<Busy>, ImportError> {
    let mut lines = Lines::new(path, text);
    let (mut spans, mut open_begin_ns, mut last_end_ns) = (Vec::new(), None, 0);
    while let Some(line) = lines.next()? {
        let time = |text| number("time", text);
        let step = if let Some(begin) = line.strip_prefix("BEGIN RepeatableTest:") {
            time(begin).and_then(|begin_ns| match open_begin_ns.replace(begin_ns) {
                None if begin_ns >= last_end_ns => Ok(()),
                _ => Err(Reason::field("span", line, "a begin after an end")),
            })
        } else if let Some(end) = line.strip_prefix("End RepeatableTest:") {
            time(end).and_then(|end_ns| match open_begin_ns.take() {
                Some(begin_ns) if begin_ns <= end_ns => {
                    last_end_ns = end_ns;
                    spans.push(Busy { begin_ns, end_ns });
                    Ok(())
                }
                _ => Err(Reason::field("span", line, "an end after a begin")),
            })
        } else if line.starts_with("RepeatableTest overhead(ns):") {
            Ok(())
        } else {
            Err(Reason::field("line", line, "BEGIN or End of a test"))
        };
        step.map_err(|reason| lines.error(reason))?;
    }
    Ok(spans)
}

/// Memory of the card from cudaMemGetInfo.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CardReading {
    /// Memory in use by all processes.
    pub used_mib: f64,
    /// Total memory.
    pub total_mib: f64,
}

/// Reads a card log: a reading for each line of the memory log.
///
/// # Errors
/// If the file cannot be read or is invalid: with the line.
pub fn load_card(path: &Path) -> Result<Vec<CardReading>, ImportError> {
    parse_card(path, text::open(path)?)
}

/// Reads a card log from text; `path` is for messages.
///
/// # Errors
/// If the text is invalid: with the line.
pub fn parse_card(path: &Path, text: impl BufRead) -> Result<Vec<CardReading>, ImportError> {
    let mut lines = Lines::new(path, text);
    let mut readings = Vec::new();
    while let Some(line) = lines.next()? {
        let reading = card_line(line).map_err(|reason| lines.error(reason))?;
        readings.push(reading);
    }
    Ok(readings)
}

fn card_line(line: &str) -> Result<CardReading, Reason> {
    let [used, _free, total] = fields(line.split_ascii_whitespace())?;
    let size = |field, text: &str| {
        let value = text.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
        value.ok_or_else(|| Reason::field(field, text, "a size in MiB"))
    };
    Ok(CardReading { used_mib: size("used", used)?, total_mib: size("total", total)? })
}
