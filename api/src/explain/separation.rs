//! Remedy for an owner whose memory was evicted for another one.

use model::text::{bytes, share};

use crate::{Remedies, Remedy};

/// Separation from an owner for which these bytes of all evicted ones were evicted.
#[must_use]
pub fn separation(evictor: &str, for_evictor_bytes: u64, evicted_bytes: u64) -> Remedies {
    let action = format!("run it apart from {evictor}: one after the other, or on different GPUs");
    let evidence = format!(
        "its memory fits on the GPU, and {} of the {} evicted from it were for {evictor}",
        share(for_evictor_bytes, evicted_bytes),
        bytes(evicted_bytes)
    );
    Remedies { effective: vec![Remedy { action, evidence, unless: None }], ineffective: Vec::new() }
}
