//! The live policies, and what they have in common.
//!
//! * [`pingpong`]: advice for memory that CPU and GPU use in turn
//! * [`cycle`], [`hot_cold`], [`tenants`]: retention of blocks at the GPU, by [`retention`] and
//!   [`renewal_rate`]; the first two by [`working_set`], too
//! * [`stream`]: prefetches ahead of a walk, by [`walk`] and [`pace`]
//! * [`controls`]: control policies that verification must find harmful
//!
//! A policy uses its [`View`](super::live_policy::View) alone, and has no state but that of a
//! proposal in force.

pub(super) mod controls;
pub(super) mod cycle;
pub(super) mod hot_cold;
mod pace;
pub(super) mod pingpong;
mod renewal_rate;
mod retention;
pub(super) mod stream;
pub(super) mod tenants;
mod walk;
mod working_set;
