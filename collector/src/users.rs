//! Names of users.
//!
//! The name service may ask a server that takes its time, or is down: look-ups run aside, and a name that is not there yet is not shown yet.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// User names seen so far.
#[derive(Debug, Default)]
pub(crate) struct Users {
    /// `None`: being looked up, or there is no such user.
    known: Arc<Mutex<HashMap<u32, Option<String>>>>,
}

impl Users {
    /// Begins to look up a user, once.
    pub(crate) fn want(&self, uid: u32) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains_key(&uid) {
            return;
        }
        known.insert(uid, None);
        drop(known);
        let known = Arc::clone(&self.known);
        tokio::task::spawn_blocking(move || {
            let name = uzers::get_user_by_uid(uid).map(|user| user.name().to_string_lossy().into_owned());
            known.lock().unwrap_or_else(PoisonError::into_inner).insert(uid, name);
        });
    }

    /// The user's name, if it is known by now.
    pub(crate) fn name(&self, uid: u32) -> Option<String> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).get(&uid).cloned().flatten()
    }
}
