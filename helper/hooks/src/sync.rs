//! Atomic words of the gate. Its model (`tests/gate.rs`) has those of loom in place of this module.

pub(crate) use core::sync::atomic::{AtomicU64, Ordering};
