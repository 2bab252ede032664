//! Iterations of G10's artifact, and its machine.

use std::path::Path;

use sim::Machine;
use trace_sources::import::g10::{self, Set};

use crate::Result;

/// Reads an iteration from the folder of published traces.
pub(crate) fn load(data: &Path, set: &str) -> Result<Set> {
    Ok(g10::load(&published::g10_kernels(data, set))?)
}

/// Title of an iteration.
pub(crate) fn title(set: &str) -> String {
    set.replace('/', " ")
}

/// Configuration of the artifact, as far as the model represents it: an A100 with 40 GiB on a link
/// of 15.754 GB/s, flash of 3.2 GB/s.
pub(crate) fn machine() -> Result<Machine> {
    let mut machine = Machine::named("a100")?;
    machine.link_to_gpu.peak_bytes_per_s.value = 15.754e9;
    machine.link_to_host.peak_bytes_per_s.value = 15.754e9;
    Ok(machine)
}

/// Host memory of the artifact.
pub(crate) const HOST_BYTES: u64 = 128 * crate::GIB;
