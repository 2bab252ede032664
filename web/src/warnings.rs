//! What is wrong with the service itself, by name, for as long as it is: it goes on, and does not do all that it should.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use model::api;

/// What may be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Warning {
    /// The address to serve on cannot be had; it is tried again.
    TcpUnavailable,
    /// Nothing can be written to the folder of the state.
    StateUnavailable,
    /// The audit log cannot be written.
    AuditUnavailable,
    /// The configuration was to be read again, and is not in order.
    ConfigurationNotReloaded,
}

/// Those that are active. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<Mutex<BTreeMap<Warning, String>>>);

impl Warning {
    /// Each of them.
    pub const ALL: [Self; 4] =
        [Self::TcpUnavailable, Self::StateUnavailable, Self::AuditUnavailable, Self::ConfigurationNotReloaded];

    /// Its name in status and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TcpUnavailable => "tcp_unavailable",
            Self::StateUnavailable => "state_unavailable",
            Self::AuditUnavailable => "audit_unavailable",
            Self::ConfigurationNotReloaded => "configuration_not_reloaded",
        }
    }
}

impl Warnings {
    /// It is so from now on, with this to be said of it.
    pub fn raise(&self, warning: Warning, message: String) {
        self.active().insert(warning, message);
    }

    /// It is so no longer.
    pub fn clear(&self, warning: Warning) {
        self.active().remove(&warning);
    }

    /// Whether it is so.
    #[must_use]
    pub fn is_active(&self, warning: Warning) -> bool {
        self.active().contains_key(&warning)
    }

    pub(crate) fn list(&self) -> Vec<api::Warning> {
        let of = |(warning, message): (&Warning, &String)| api::Warning {
            name: warning.name().to_owned(),
            message: message.clone(),
        };
        self.active().iter().map(of).collect()
    }

    fn active(&self) -> MutexGuard<'_, BTreeMap<Warning, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_is_listed_with_what_was_said_last_until_it_is_cleared() {
        let warnings = Warnings::default();
        for message in ["taken", "taken", "no such address"] {
            warnings.raise(Warning::TcpUnavailable, message.to_owned());
        }
        let expected = api::Warning { name: "tcp_unavailable".to_owned(), message: "no such address".to_owned() };
        assert_eq!(warnings.clone().list(), [expected]);
        warnings.clear(Warning::TcpUnavailable);
        assert!(warnings.list().is_empty() && !warnings.is_active(Warning::TcpUnavailable));
    }
}
