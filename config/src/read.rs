//! Reads of text files, within limits.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
};

/// Maximum bytes of a file and its fragments together. No file written by people is longer.
pub(crate) const BYTES_MAX: u64 = 1 << 20;

pub(crate) fn read(file: &Path) -> io::Result<String> {
    read_up_to(file, BYTES_MAX).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => io::Error::other(format!("it is longer than {BYTES_MAX} bytes")),
        _ => error,
    })
}

/// Reads text of at most `bytes_max` bytes.
pub(crate) fn read_up_to(file: &Path, bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    File::open(file)?.take(bytes_max + 1).read_to_string(&mut text).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => io::Error::other("it is not text in UTF-8"),
        _ => error,
    })?;
    if text.len() as u64 > bytes_max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}
