//! Fuzz targets: functions that parse bytes as uvmd or uvmctl parse what others gave them, and panic where a property does not hold.
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a target says by a panic that a property does not hold"
)]

pub mod mutate;
mod targets;

/// A parser of untrusted bytes, and what must hold of it whatever they are.
#[derive(Debug)]
pub struct Target {
    /// Of the target, its corpus and its file.
    pub name: &'static str,
    /// Panics where a property does not hold.
    pub run: fn(&[u8]),
}

pub use targets::TARGETS;

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
