//! The loop that acts: from verdicts on a process to steps on its memory, their verification and
//! rollback. docs/policies.md describes it.
//!
//! [`Scene`] -> proposal or plan -> guard -> order or published table -> trial -> confirmed, or
//! rolled back
//!
//! Two modules decide, by different measurements. Neither depends on the other:
//!
//! * `live`: live policies: proposals of steps on what a process does now, judged by windows of
//!   time
//! * `plans`: plans of moves for iterations that repeat, judged by blocks of iterations
//!
//! Both use:
//!
//! * `scene`: input of an interval; `gpu_context`: figures that the processes at a GPU share
//! * `guard`: permitted actions, and their budgets
//! * `cooldown`: cool-downs of policies after a rollback
//! * `intervals`: sets of addresses
//! * `life_cycle`: stages of a decision
//! * [`limits`]: every limit, with its reason
//!
//! [`engine`] runs both for all processes: [`Engine`].

mod cooldown;
pub mod engine;
mod gpu_context;
mod guard;
mod intervals;
mod life_cycle;
pub mod limits;
mod live;
mod plans;
mod scene;

pub use engine::Engine;
pub use guard::denied;
pub use limits::Limits;
pub use live::{
    live_policy::{self, LivePolicy, Next, Running, View},
    rollback::InForce,
};
pub use scene::Scene;
