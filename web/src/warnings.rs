//! Active warnings of the service, by name: it runs, with a part of its function missing.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Warning of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Warning {
    /// The address to listen on is unavailable; retries follow.
    TcpUnavailable,
    /// The address to serve metrics alone on is unavailable; retries follow.
    MetricsListenerUnavailable,
    /// The state directory is not writable.
    StateUnavailable,
    /// The audit log is not writable.
    AuditUnavailable,
    /// The last reload of the configuration failed.
    ConfigurationNotReloaded,
    /// The file of names of pods is missing, malformed or outdated.
    OwnerNamesUnavailable,
}

/// Active warnings. Cheap to clone; all clones share their state.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<Mutex<BTreeMap<Warning, String>>>);

impl Warning {
    /// All warnings.
    pub const ALL: [Self; 6] = [
        Self::TcpUnavailable,
        Self::MetricsListenerUnavailable,
        Self::StateUnavailable,
        Self::AuditUnavailable,
        Self::ConfigurationNotReloaded,
        Self::OwnerNamesUnavailable,
    ];

    /// Name in status and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TcpUnavailable => "tcp_unavailable",
            Self::MetricsListenerUnavailable => "metrics_listener_unavailable",
            Self::StateUnavailable => "state_unavailable",
            Self::AuditUnavailable => "audit_unavailable",
            Self::ConfigurationNotReloaded => "configuration_not_reloaded",
            Self::OwnerNamesUnavailable => "owner_names_unavailable",
        }
    }
}

impl Warnings {
    /// Activates a warning, or replaces its message.
    pub fn raise(&self, warning: Warning, message: String) {
        self.active().insert(warning, message);
    }

    /// Clears a warning.
    pub fn clear(&self, warning: Warning) {
        self.active().remove(&warning);
    }

    /// Whether the warning is active.
    #[must_use]
    pub fn is_active(&self, warning: Warning) -> bool {
        self.active().contains_key(&warning)
    }

    /// Active warnings, as the API has them.
    #[must_use]
    pub fn list(&self) -> Vec<api::Warning> {
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
    fn a_warning_is_listed_with_its_last_message_until_it_is_cleared() {
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
