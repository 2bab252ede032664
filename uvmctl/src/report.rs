//! Reports as JSON, for other programs.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
};

use anyhow::Context;
use serde::Serialize;

/// Writes into a file, or to standard output for `-`, where nothing else is to be written then: it tells whether it did that.
pub(crate) fn write(report: &impl Serialize, path: &Path) -> anyhow::Result<bool> {
    let wrong = || format!("cannot write {}", path.display());
    let to_stdout = path.as_os_str() == "-";
    let out: Box<dyn Write> =
        if to_stdout { Box::new(io::stdout()) } else { Box::new(File::create(path).with_context(wrong)?) };
    let mut out = BufWriter::new(out);
    serde_json::to_writer(&mut out, report)?;
    writeln!(out).and_then(|()| out.flush()).with_context(wrong)?;
    Ok(to_stdout)
}
