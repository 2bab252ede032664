//! The machine that an iteration is modelled on, as the command line names it.

use std::{fs, path::Path};

use anyhow::Context;
use sim::Machine;

/// One that comes with the simulator, by its name; or, of a path that ends in `.toml`, the one that the file describes.
pub(crate) fn load(name: &str) -> anyhow::Result<Machine> {
    if Path::new(name).extension().is_none_or(|extension| extension != "toml") {
        return Ok(Machine::named(name)?);
    }
    let text = fs::read_to_string(name).with_context(|| format!("cannot read {name}"))?;
    Machine::parse(&text).with_context(|| format!("{name} describes no machine"))
}
