//! Machine of a simulation, by its name on the command line.

use std::{fs, path::Path};

use anyhow::Context;
use sim::Machine;

/// Loads a machine: a built-in one by name, or the description at a path that ends in `.toml`.
pub(crate) fn load(name: &str) -> anyhow::Result<Machine> {
    if Path::new(name).extension().is_none_or(|extension| extension != "toml") {
        return Ok(Machine::named(name)?);
    }
    let text = fs::read_to_string(name).with_context(|| format!("cannot read {name}"))?;
    Machine::parse(&text).with_context(|| format!("{name} describes no machine"))
}
