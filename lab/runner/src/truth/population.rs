//! Population of GPU memory without a copy: resident bytes plus bytes copied away, less bytes
//! copied there.

use super::facts::ProcessFacts;
use crate::residency::Residency;

const NOWHERE_KNOWN: &str = "the process was not asked where its memory is, or had ended before that";
const DUPLICATED: &str = "duplicated pages leave a GPU without a copy";

/// Resident bytes of a process in GPU memory: of one GPU by its number, or of all.
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
