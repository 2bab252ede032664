//! Names of users.
//!
//! The name service may query a server that is slow or down: look-ups run on separate threads.

use std::time::{Duration, Instant};

use crate::lookup_cache::{LookupCache, Pace};

/// A user created a minute after its first process has its name a minute later; a reassigned uid,
/// within the hour.
const PACE: Pace = Pace {
    retry_min: Duration::from_mins(1),
    retry_max: Duration::from_mins(1),
    answer_max: Duration::from_hours(1),
    wanted: Duration::from_hours(2),
    running_max: 4,
    timeout: Duration::from_mins(1),
};

/// User names seen so far.
#[derive(Debug)]
pub(crate) struct Users(LookupCache<u32, String>);

impl Default for Users {
    fn default() -> Self {
        Self(LookupCache::new(PACE, |uid| {
            uzers::get_user_by_uid(*uid).map(|user| user.name().to_string_lossy().into_owned())
        }))
    }
}

impl Users {
    /// Starts to look up a user whose name will be needed.
    pub(crate) fn want(&self, uid: u32) {
        self.name(uid);
    }

    /// Name of a user, if it is known by now. Starts a look-up if it is unknown or old.
    pub(crate) fn name(&self, uid: u32) -> Option<String> {
        self.0.get(&uid, Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn user_name_is_known_shortly_after_the_first_request() {
        let users = Users::default();
        users.want(0);
        let deadline = Instant::now() + Duration::from_mins(1);
        while users.name(0).is_none() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(users.name(0).as_deref(), Some("root"));
    }
}
