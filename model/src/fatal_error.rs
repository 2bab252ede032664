//! The driver's global fatal error, after which it refuses every new program.

use std::fmt::{self, Display, Formatter};

/// Global fatal error of nvidia-uvm. The driver keeps it until it is reloaded. NVML, and so nvidia-smi, do not use nvidia-uvm, and
/// work on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FatalError {
    /// `NV_STATUS` of the error; `None` if it is older than the probes, and only its effect is known.
    pub status: Option<u32>,
}

impl FatalError {
    /// The error without its status.
    pub const FINDING: &str = "nvidia-uvm has a global fatal error";
    /// Effect of the error, and the remedy.
    pub const ADVICE: &str = "every new CUDA program fails, while nvidia-smi works; end all CUDA programs and run \
        `modprobe -r nvidia_uvm && modprobe nvidia_uvm`, and reboot if that fails or the error comes back";

    /// Name of the status in the driver's source, for those that the driver's calls of its error function have.
    #[must_use]
    pub const fn name(self) -> Option<&'static str> {
        match self.status {
            Some(0x0b) => Some("NV_ERR_ECC_ERROR"),
            Some(0x0f) => Some("NV_ERR_GPU_IS_LOST"),
            Some(0x40) => Some("NV_ERR_INVALID_STATE"),
            Some(0x51) => Some("NV_ERR_NO_MEMORY"),
            Some(0x60) => Some("NV_ERR_RC_ERROR"),
            Some(0x62) => Some("NV_ERR_RESET_REQUIRED"),
            Some(0x65) => Some("NV_ERR_TIMEOUT"),
            _ => None,
        }
    }
}

/// The error and its [`ADVICE`](FatalError::ADVICE).
impl Display for FatalError {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(Self::FINDING)?;
        match (self.status, self.name()) {
            (Some(status), Some(name)) => write!(formatter, " ({name}, {status:#x})")?,
            (Some(status), None) => write!(formatter, " ({status:#x})")?,
            (None, _) => {}
        }
        write!(formatter, ": {}", Self::ADVICE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentence_has_the_status_if_it_is_known_and_the_remedy() {
        let said = |status| FatalError { status }.to_string();
        assert!(said(Some(0x60)).starts_with("nvidia-uvm has a global fatal error (NV_ERR_RC_ERROR, 0x60): every new"));
        assert!(said(Some(0xbeef)).starts_with("nvidia-uvm has a global fatal error (0xbeef): "));
        assert!(said(None).starts_with("nvidia-uvm has a global fatal error: "));
        assert!(said(None).contains("modprobe -r nvidia_uvm"));
    }
}
