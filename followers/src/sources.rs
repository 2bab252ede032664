//! Sources of calls and plans for all followers, and their limits.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use recorder::{READING_CREDIT_PART, Recordings, SEARCHES_CREDIT_PART};
use sys::cpu_budget::{Accounts, Allowance};

use crate::{
    planning::{CREDIT_PART as PLANNERS_CREDIT_PART, Planners},
    settings::Probes,
    shares::Shares,
};

/// Processor time of followers for a user, planners excluded.
const FOLLOWING_ALLOWANCE: Allowance =
    Allowance { part: 50, burst: Duration::from_millis(500), credit_part: Some(FOLLOWING_CREDIT_PART) };
/// Share of a process's own processor time that its user's followers may use in addition: 1 / this.
const FOLLOWING_CREDIT_PART: u32 = 40;
/// Maximum share of a process's own processor time for all work on its calls together: 1 / this.
const CREDITS_PART: u32 = 10;
const _: () = {
    let parts = [READING_CREDIT_PART, SEARCHES_CREDIT_PART, FOLLOWING_CREDIT_PART, PLANNERS_CREDIT_PART];
    let [reading, searches, following, planners] = parts;
    let all = reading * searches * following * planners;
    assert!(all / reading + all / searches + all / following + all / planners <= all / CREDITS_PART);
};

/// Sources of calls and plans for all followers, and their limits.
#[derive(Clone, Debug)]
pub(crate) struct Sources {
    pub(crate) recordings: Arc<Recordings>,
    pub(crate) planners: Planners,
    /// Processor time of followers.
    pub(crate) accounts: Arc<Mutex<Accounts>>,
    /// Memory of followers.
    pub(crate) shares: Shares,
    /// Permitted probes of launches.
    pub(crate) probes: Option<Probes>,
}

impl Sources {
    /// Sources without followers.
    pub(crate) fn new(recordings: Arc<Recordings>, planners: Planners, probes: Option<Probes>) -> Self {
        let accounts = Arc::new(Mutex::new(Accounts::new(FOLLOWING_ALLOWANCE)));
        Self { recordings, planners, accounts, shares: Shares::default(), probes }
    }
}
