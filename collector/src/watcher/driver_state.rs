//! Whether the driver accepts new programs: by opens of its device, and by the probe on its fatal errors.
//!
//! An open shows the driver's current state, also for errors from before uvmd's start. The probe has the status, and works
//! where uvmd may not open the device.

use model::FatalError;
use sys::fatal_error::Acceptance;

/// Last known state of the driver.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DriverState {
    acceptance: Acceptance,
    /// Status that the probe saw since it was attached.
    status: Option<u32>,
    /// Whether the error was logged.
    is_logged: bool,
}

impl DriverState {
    /// Sets the result of an open.
    pub(super) fn set_acceptance(&mut self, acceptance: Acceptance) {
        self.acceptance = acceptance;
        self.log();
    }

    /// Sets the status that the probe saw; `None` without any, and while no probe is attached.
    pub(super) fn set_probed_status(&mut self, status: Option<u32>) {
        self.status = status;
        self.log();
    }

    /// The driver's fatal error, if it has one.
    pub(super) fn fatal_error(&self) -> Option<FatalError> {
        match self.acceptance {
            // NVIDIA's own tests of the driver reset it.
            Acceptance::Accepted => None,
            Acceptance::Refused => Some(FatalError { status: self.status }),
            Acceptance::Unknown => self.status.map(|status| FatalError { status: Some(status) }),
        }
    }

    fn log(&mut self) {
        let error = self.fatal_error();
        if let (Some(error), false) = (error, self.is_logged) {
            tracing::error!("{error}");
        }
        self.is_logged = error.is_some();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(acceptance: Acceptance, status: Option<u32>) -> Option<FatalError> {
        let mut state = DriverState::default();
        state.set_probed_status(status);
        state.set_acceptance(acceptance);
        state.fatal_error()
    }

    #[test]
    fn open_of_the_device_outranks_the_probe_and_the_probe_has_the_status() {
        let of = |status| Some(FatalError { status });
        assert_eq!(error(Acceptance::Accepted, None), None);
        assert_eq!(error(Acceptance::Accepted, Some(0x60)), None);
        assert_eq!(error(Acceptance::Refused, Some(0x60)), of(Some(0x60)));
        // It is older than the probes.
        assert_eq!(error(Acceptance::Refused, None), of(None));
        assert_eq!(error(Acceptance::Unknown, Some(0x60)), of(Some(0x60)));
        assert_eq!(error(Acceptance::Unknown, None), None);
    }

    #[test]
    fn reloaded_driver_has_no_error() {
        let mut state = DriverState::default();
        state.set_probed_status(Some(0x60));
        assert!(state.fatal_error().is_some());
        state.set_probed_status(None);
        assert_eq!(state.fatal_error(), None);
    }
}
