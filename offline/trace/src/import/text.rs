//! Files as lines, uncompressed where they are compressed, within limits.

use std::{
    fs::File,
    io::{BufRead, BufReader, Cursor, Read},
    path::Path,
};

use flate2::bufread::MultiGzDecoder;

use super::error::{ImportError, Reason};

/// What gzip begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// No format here has lines that come near it.
const MAX_LINE_BYTES: usize = 1 << 20;
/// Uncompressed, so that a small file cannot become an endless one.
const MAX_FILE_BYTES: u64 = 16 << 30;

pub(super) type Text = Box<dyn BufRead>;

/// Opens a file for reading what is in it.
pub(super) fn open(path: &Path) -> Result<Text, ImportError> {
    let file = File::open(path).map_err(|error| ImportError::new(path, None, error))?;
    text_of(file).map_err(|error| ImportError::new(path, None, error))
}

fn text_of(source: impl Read + 'static) -> Result<Text, std::io::Error> {
    let mut source = BufReader::new(source);
    let mut magic = Vec::new();
    source.by_ref().take(GZIP.len() as u64).read_to_end(&mut magic)?;
    let compressed = magic == GZIP;
    let whole = BufReader::new(Cursor::new(magic).chain(source));
    // One byte more than there may be tells apart what is as large from what is larger.
    let limit = MAX_FILE_BYTES + 1;
    Ok(if compressed {
        Box::new(BufReader::new(MultiGzDecoder::new(whole).take(limit)))
    } else {
        Box::new(whole.take(limit))
    })
}

/// The first bytes of what is in a file, as far as they are text.
pub(super) fn head(path: &Path) -> Result<String, ImportError> {
    const BYTES: u64 = 64 << 10;
    let mut head = Vec::new();
    open(path)?.take(BYTES).read_to_end(&mut head).map_err(|error| ImportError::new(path, None, error))?;
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// The lines of a file, numbered from 1, without their ends. Empty ones are left out.
pub(super) struct Lines<'a, R> {
    path: &'a Path,
    source: R,
    buffer: Vec<u8>,
    line: u64,
    bytes: u64,
}

impl<'a, R: BufRead> Lines<'a, R> {
    pub(super) fn new(path: &'a Path, source: R) -> Self {
        Self { path, source, buffer: Vec::new(), line: 0, bytes: 0 }
    }

    /// An error in the line that was read last.
    pub(super) fn error(&self, reason: impl Into<Reason>) -> ImportError {
        ImportError::new(self.path, Some(self.line), reason)
    }

    pub(super) fn number(&self) -> u64 {
        self.line
    }

    /// The next line that is not empty.
    pub(super) fn next(&mut self) -> Result<Option<&str>, ImportError> {
        loop {
            self.buffer.clear();
            self.line += 1;
            let limit = MAX_LINE_BYTES as u64 + 1;
            let read = self.source.by_ref().take(limit).read_until(b'\n', &mut self.buffer);
            let read = read.map_err(|error| self.error(error))?;
            self.bytes = self.bytes.saturating_add(read as u64);
            if read == 0 {
                return Ok(None);
            }
            if self.buffer.len() > MAX_LINE_BYTES {
                return Err(self.error(Reason::LineTooLong { limit: MAX_LINE_BYTES }));
            }
            if self.bytes > MAX_FILE_BYTES {
                return Err(self.error(Reason::TooLarge { limit: MAX_FILE_BYTES }));
            }
            if !self.buffer.trim_ascii().is_empty() {
                break;
            }
        }
        let text = std::str::from_utf8(&self.buffer).map_err(|_| self.error(Reason::NotText))?;
        Ok(Some(text.trim_end_matches(['\n', '\r'])))
    }
}

/// The fields of a line, if there are as many.
pub(super) fn fields<'a, const N: usize>(parts: impl Iterator<Item = &'a str>) -> Result<[&'a str; N], Reason> {
    let all: Vec<_> = parts.collect();
    let found = all.len();
    all.try_into().map_err(|_| Reason::FieldCount { expected: N, found })
}

/// A whole number.
pub(super) fn number(field: &'static str, text: &str) -> Result<u64, Reason> {
    text.trim().parse().map_err(|_| Reason::field(field, text, "whole number"))
}

/// A number of 32 bits, such as an id.
pub(super) fn number_u32(field: &'static str, text: &str) -> Result<u32, Reason> {
    text.trim().parse().map_err(|_| Reason::field(field, text, "number of 32 bits"))
}

/// An address, with or without `0x`.
pub(super) fn address(field: &'static str, text: &str) -> Result<u64, Reason> {
    let digits = text.trim();
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    u64::from_str_radix(digits, 16).map_err(|_| Reason::field(field, text, "address"))
}

/// Milliseconds with a fraction, exactly, as nanoseconds: digits beyond those are dropped.
pub(super) fn milliseconds(field: &'static str, text: &str) -> Result<u64, Reason> {
    const FRACTION_DIGITS: usize = 6;
    let wrong = || Reason::field(field, text, "time in milliseconds");
    let (whole, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) {
        return Err(wrong());
    }
    let kept = fraction.get(..FRACTION_DIGITS).unwrap_or(fraction);
    let fraction_ns: u64 = format!("{kept:0<FRACTION_DIGITS$}").parse().map_err(|_| wrong())?;
    let whole_ms: u64 = whole.parse().map_err(|_| wrong())?;
    whole_ms.checked_mul(1_000_000).and_then(|ns| ns.checked_add(fraction_ns)).ok_or_else(wrong)
}
