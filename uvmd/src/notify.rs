//! Tells systemd how far the service is, where it runs as a `Type=notify` unit: `sd_notify(3)`.

use sd_notify::NotifyState;

/// Tells systemd that uvmd serves.
pub(crate) fn ready() {
    notify(&[NotifyState::Ready]);
}

/// Tells systemd of a reload, until [`ready`].
pub(crate) fn reloading() {
    // Without the time of this very moment systemd would wait for it in vain.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!("cannot tell systemd of a reload: {error}"),
    }
}

/// Tells systemd the status, as a sentence.
pub(crate) fn status(text: &str) {
    // A line of its own would be another message.
    notify(&[NotifyState::Status(&text.replace('\n', " "))]);
}

/// Tells systemd that uvmd stops.
pub(crate) fn stopping() {
    notify(&[NotifyState::Stopping]);
}

/// Does nothing where nobody asked for it.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!("cannot notify systemd: {error}");
    }
}
