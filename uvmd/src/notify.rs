//! Notifications to systemd, where uvmd runs as a unit with `Type=notify`: `sd_notify(3)`.

mod watchdog;

use std::iter;

use model::{Snapshot, SourceState};
use sd_notify::NotifyState;
use web::Warnings;

pub(crate) use watchdog::{Turns, while_stopping, while_working};

/// Reports that uvmd serves.
pub(crate) fn ready() {
    notify(&[NotifyState::Ready]);
}

/// Reports the begin of a reload, which [`ready`] ends.
pub(crate) fn reloading() {
    // systemd matches the end of the reload to this time.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!("cannot notify systemd of a reload: {error}"),
    }
}

/// Reports the status, as a sentence.
fn status(text: &str) {
    // A second line would be another message.
    notify(&[NotifyState::Status(&text.replace('\n', " "))]);
}

/// Reports that uvmd stops.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Sends a notification. Does nothing without a service manager.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("cannot notify systemd: {error}");
    }
}

/// Status for `systemctl status`: state, and the warnings of [`Warnings`]. Without figures: each
/// change is a message.
fn status_of(snapshot: &Snapshot, warnings: &Warnings) -> String {
    let source = &snapshot.source;
    let mut parts = match &source.state {
        SourceState::Waiting { missing } => vec![format!("waiting: {}", missing.join("; "))],
        SourceState::Refused { reason } => vec![format!("refused: {reason}")],
        SourceState::Counting { .. } => {
            let driver = source.driver.as_ref().map_or("unknown", |driver| driver.version.as_str());
            let degraded = source.degraded.iter().map(|each| format!("degraded: {}", each.description));
            iter::once(format!("counting, driver {driver}")).chain(degraded).collect()
        }
    };
    parts.extend(warnings.list().into_iter().map(|warning| warning.message));
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use model::{DriverInfo, SourceStatus};
    use web::Warning;

    use super::*;

    fn status(state: SourceState, warnings: &Warnings) -> String {
        let driver = DriverInfo { version: "550.163.01".to_owned(), ..DriverInfo::default() };
        let source = SourceStatus { driver: Some(driver), ..SourceStatus::new(state) };
        status_of(&Snapshot::empty(SystemTime::UNIX_EPOCH, source), warnings)
    }

    #[test]
    fn status_names_state_reasons_and_warnings() {
        let none = Warnings::default();
        let missing = vec!["nvidia-uvm is not loaded".to_owned(), "no kprobes".to_owned()];
        assert_eq!(status(SourceState::Waiting { missing }, &none), "waiting: nvidia-uvm is not loaded; no kprobes");
        let reason = "driver 999 is unknown".to_owned();
        assert_eq!(status(SourceState::Refused { reason }, &none), "refused: driver 999 is unknown");
        let since = SystemTime::UNIX_EPOCH;
        assert_eq!(status(SourceState::Counting { since }, &none), "counting, driver 550.163.01");
        let warnings = Warnings::default();
        warnings.raise(Warning::ConfigurationNotReloaded, "not reloaded: line 3".to_owned());
        let with_warning = status(SourceState::Counting { since }, &warnings);
        assert_eq!(with_warning, "counting, driver 550.163.01; not reloaded: line 3");
    }
}
