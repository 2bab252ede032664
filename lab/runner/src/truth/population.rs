//! What became resident at a GPU with nothing to copy: what is there, and what was copied away, less what was copied there.

use super::facts::ProcessFacts;
use crate::residency::Residency;

const NOWHERE_KNOWN: &str = "the process was not asked where its memory is, or had ended before that";
const DUPLICATED: &str = "duplicated pages leave a GPU without a copy";

/// Bytes of a process that lie in the memory of GPUs: of one by its number, or of all.
pub(super) fn resident_bytes(facts: &ProcessFacts, gpu: Option<usize>) -> Result<u64, &'static str> {
    let residency = facts.residency.as_ref().ok_or(NOWHERE_KNOWN)?;
    if facts.duplicated() {
        return Err(DUPLICATED);
    }
    let bytes = |residency: &Residency| match gpu {
        Some(number) => residency.gpu_bytes.get(number).copied().unwrap_or(0),
        None => residency.gpu_bytes.iter().sum(),
    };
    Ok(residency.iter().map(bytes).sum())
}
