//! Lines of files, decompressed, within limits.

use std::{
    fs::File,
    io::{BufRead, BufReader, Cursor, Read},
    path::Path,
};

use flate2::bufread::MultiGzDecoder;

use super::error::{ImportError, Reason};

/// First bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Maximum length of a line, which no format here approaches.
const MAX_LINE_BYTES: usize = 1 << 20;
/// Maximum of decompressed bytes, as a small file may expand without bound.
const MAX_FILE_BYTES: u64 = 16 << 30;

pub(super) type Text = Box<dyn BufRead>;

/// Opens a file for its decompressed contents.
pub(super) fn open(path: &Path) -> Result<Text, ImportError> {
    let file = File::open(path).map_err(|error| ImportError::new(path, None, error))?;
    text_of(file).map_err(|error| ImportError::new(path, None, error))
}

fn text_of(source: impl Read + 'static) -> Result<Text, std::io::Error> {
    let mut source = BufReader::new(source);
    let mut magic = Vec::new();
    source.by_ref().take(GZIP.len() as u64).read_to_end(&mut magic)?;
    let compressed = magic == GZIP;
    let source = BufReader::new(Cursor::new(magic).chain(source));
    // One byte above the maximum distinguishes a file of that size from a larger one.
    let limit = MAX_FILE_BYTES + 1;
    Ok(if compressed {
        Box::new(BufReader::new(MultiGzDecoder::new(source).take(limit)))
    } else {
        Box::new(source.take(limit))
    })
}

/// First bytes of the decompressed contents, as text.
pub(super) fn head(path: &Path) -> Result<String, ImportError> {
    const BYTES: u64 = 64 << 10;
    let mut head = Vec::new();
    open(path)?.take(BYTES).read_to_end(&mut head).map_err(|error| ImportError::new(path, None, error))?;
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// Lines of a file, numbered from 1, without terminators. Empty lines are skipped.
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

    /// Error in the line that was read last.
    pub(super) fn error(&self, reason: impl Into<Reason>) -> ImportError {
        ImportError::new(self.path, Some(self.line), reason)
    }

    pub(super) fn number(&self) -> u64 {
        self.line
    }

    /// Next line that is not empty.
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
        let text = std::str::from_utf8(&self.buffer).map_err(|_| self.error(Reason::NotUtf8))?;
        Ok(Some(text.trim_end_matches(['\n', '\r'])))
    }
}

/// Fields of a line, if their number is as expected.
pub(super) fn fields<'a, const N: usize>(parts: impl Iterator<Item = &'a str>) -> Result<[&'a str; N], Reason> {
    let all: Vec<_> = parts.collect();
    let found = all.len();
    all.try_into().map_err(|_| Reason::FieldCount { expected: N, found })
}

/// Parses a whole number.
pub(super) fn number(field: &'static str, text: &str) -> Result<u64, Reason> {
    text.trim().parse().map_err(|_| Reason::field(field, text, "a whole number"))
}

/// Parses a number of 32 bits, such as an id.
pub(super) fn number_u32(field: &'static str, text: &str) -> Result<u32, Reason> {
    text.trim().parse().map_err(|_| Reason::field(field, text, "a number of 32 bits"))
}

/// Parses a hexadecimal address, with or without `0x`.
pub(super) fn address(field: &'static str, text: &str) -> Result<u64, Reason> {
    let digits = text.trim();
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    u64::from_str_radix(digits, 16).map_err(|_| Reason::field(field, text, "an address"))
}

/// Parses milliseconds with a fraction, exactly, to nanoseconds. Further digits are cut.
pub(super) fn milliseconds(field: &'static str, text: &str) -> Result<u64, Reason> {
    const FRACTION_DIGITS: usize = 6;
    let invalid = || Reason::field(field, text, "a time in milliseconds");
    let (integer, fraction) = text.trim().split_once('.').unwrap_or((text.trim(), ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if integer.is_empty() || !digits(integer) || !digits(fraction) {
        return Err(invalid());
    }
    let significant = fraction.get(..FRACTION_DIGITS).unwrap_or(fraction);
    let fraction_ns: u64 = format!("{significant:0<FRACTION_DIGITS$}").parse().map_err(|_| invalid())?;
    let integer_ms: u64 = integer.parse().map_err(|_| invalid())?;
    integer_ms.checked_mul(1_000_000).and_then(|ns| ns.checked_add(fraction_ns)).ok_or_else(invalid)
}
