//! The loop that acts: from verdicts on a process to steps on its memory, their verification and
//! rollback. docs/policies.md describes it.
//!
//! [`Scene`] -> proposal -> guard -> [`model::Order`] -> (an actuator) -> [`model::Outcome`] ->
//! verification -> confirmed, or rolled back
//!
//! * [`engine`]: [`Acting`], for all processes
//! * [`track`], [`open`], [`rollback`]: one process at one GPU, its open decision, and withdrawals
//!   of advice
//! * [`scene`]: input of an interval
//! * [`live_policy`]: interface of a policy
//! * [`catalogue`]: implementations of the policies, and the choice among them; [`proposal`]: their
//!   proposals
//! * [`guard`], [`permitted`], [`denied`], [`room`], [`bucket`]: permitted actions, and their
//!   budgets
//! * [`meter`], [`trial`], [`verify`]: verification of the benefit; [`cost`]: its measure
//! * [`cooldown`]: cool-downs of policies after a rollback
//! * [`ledger`], [`intervals`]: advice in force
//! * [`plan_track`]: plans that the helper of a process follows; [`arms`], [`permutation`]: their
//!   trial by iterations with and without the plan
//! * [`limits`]: every limit, with its reason
//!
//! Policies: [`pingpong`]; [`cycle`], [`hot_cold`] and [`tenants`], with [`keep`] and
//! [`working_set`]; [`stream`], with [`walk`]; [`auto_live`]; and [`controls`], control policies
//! that verification must find harmful.

mod account;
mod arms;
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
mod permutation;
mod pingpong;
mod plan_track;
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
