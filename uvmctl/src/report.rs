//! JSON reports of `plan` and `sim`.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
};

use anyhow::Context;
use serde::Serialize;

/// Writes a report to a file, or to standard output for `-`. Returns whether it went to standard
/// output, which then takes no other output.
pub(crate) fn write(report: &impl Serialize, path: &Path) -> anyhow::Result<bool> {
    let failure = || format!("cannot write {}", path.display());
    let to_stdout = path.as_os_str() == "-";
    let out: Box<dyn Write> =
        if to_stdout { Box::new(io::stdout()) } else { Box::new(File::create(path).with_context(failure)?) };
    let mut out = BufWriter::new(out);
    serde_json::to_writer(&mut out, report)?;
    writeln!(out).and_then(|()| out.flush()).with_context(failure)?;
    Ok(to_stdout)
}
