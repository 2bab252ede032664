//! Fuzz targets: functions that parse bytes like uvmd or uvmctl parse untrusted input, and panic if
//! a property does not hold.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a target says by a panic that a property does not hold"
)]

pub mod mutate;
mod targets;

/// Parser of untrusted bytes, with properties that hold for any input.
#[derive(Debug)]
pub struct Target {
    /// Name of the target, its corpus and its file.
    pub name: &'static str,
    /// Entry point; panics if a property does not hold.
    pub run: fn(&[u8]),
}

pub use targets::TARGETS;

/// Target of this name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
