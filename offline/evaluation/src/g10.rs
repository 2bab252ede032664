//! Iterations of G10's artifact, and its machine.

use std::path::Path;

use sim::Machine;
use trace_sources::import::g10::{self, Set};

use crate::Result;

/// Published iterations: model and batch size.
pub(crate) const SETS: [&str; 5] = ["BERT_Base/256", "VIT/1280", "Inceptionv3/1536", "ResNet152/1280", "SENet154/1024"];

/// Reads an iteration from the folder of published traces.
pub(crate) fn load(data: &Path, set: &str) -> Result<Set> {
    Ok(g10::load(&data.join(format!("g10/derived/{set}.kernels.csv")))?)
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
