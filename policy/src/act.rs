//! The loop that acts: from what is wrong with a process to steps that put it right, and back when they do not. docs/policies.md describes it.
//!
//! [`Scene`] -> proposal -> guard -> [`model::Order`] -> (an actuator) -> [`model::Outcome`] -> verification -> kept, or taken back
//!
//! * [`engine`]: [`Acting`], for all processes
//! * [`track`], [`open`], [`rollback`]: one process at one GPU, the decision that stands for it, and advice that is being withdrawn
//! * [`scene`]: what is looked at
//! * [`live_policy`]: interface of a policy
//! * [`catalogue`]: implementations of the policies, and which is tried; [`proposal`]: what they propose
//! * [`guard`], [`permitted`], [`denied`], [`room`], [`bucket`]: what may be done
//! * [`meter`], [`trial`], [`verify`]: whether it helped; [`cost`]: by what that is told
//! * [`cooldown`]: what is not tried again for now
//! * [`ledger`], [`intervals`]: what advice is in force
//! * [`limits`]: every limit, with its reason
//!
//! Policies: [`pingpong`]; [`cycle`], [`hot_cold`] and [`tenants`], with [`keep`] and [`working_set`]; [`stream`], with [`walk`];
//! [`auto_live`]; and [`controls`], which are there to be shown to be bad.

mod account;
mod auto_live;
mod bucket;
pub mod catalogue;
mod controls;
mod cooldown;
mod cost;
mod cycle;
pub mod denied;
pub mod engine;
mod guard;
mod hot_cold;
mod intervals;
mod keep;
mod ledger;
pub mod limits;
pub mod live_policy;
mod meter;
mod open;
mod pace;
mod permitted;
mod pingpong;
mod proposal;
mod renewal_rate;
mod rollback;
mod room;
mod scene;
mod stream;
mod tenants;
mod track;
mod trial;
mod verify;
mod walk;
mod working_set;

pub use engine::Acting;
pub use limits::Limits;
pub use live_policy::{LivePolicy, Next, Running, View};
pub use rollback::InForce;
pub use scene::Scene;
