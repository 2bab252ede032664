//! Calls of nvidia-uvm, made from outside on another process's VA space. The driver does not check
//! the caller: it takes the VA space from the open file, which
//! [`PidFd::take`](crate::pidfd::PidFd::take) duplicates.
//!
//! * [`target`]: a VA space of another process; `descriptors`: its descriptors
//! * [`openers`]: processes that have the driver open
//! * [`call`]: the calls; [`pages`]: their page ranges
//! * [`mapped`]: addresses of a process's managed memory
//! * [`tracker`]: what the driver counts of one VA space; [`counters`]: its counters, held by this
//!   process
//! * [`request`]: parameter blocks, by driver version
//! * [`records`]: records of the driver's events; [`queue`]: the queues that have them
//!
//! A duplicated descriptor keeps the VA space, its GPU memory and the GPU's registration alive
//! after its process's exit, and the driver's teardown runs in the process that closes last.
//! Descriptors are therefore duplicated just before use and closed right after. An owner of a
//! long-lived one ([`counters::Counters`]) closes it when the process's pidfd reports its exit.

pub mod call;
pub mod counters;
mod descriptors;
pub mod mapped;
pub mod openers;
pub(crate) mod outcome;
pub mod pages;
pub mod queue;
pub mod records;
mod request;
pub mod target;
pub mod tracker;

use std::{fmt, io, str::FromStr};

pub use descriptors::Descriptor;
use thiserror::Error;

use crate::pidfd::PidFdError;

/// Failure of a call to the driver.
#[derive(Debug, Error)]
pub enum UvmError {
    /// The process cannot be reached.
    #[error(transparent)]
    Process(#[from] PidFdError),
    /// The descriptors cannot be listed.
    #[error("the open files of process {pid} cannot be read: {source}")]
    Unreadable {
        /// Process.
        pid: u32,
        /// Error of the listing.
        source: io::Error,
    },
    /// The process does not use the driver, does not use it yet, or has closed its descriptor.
    #[error("process {0} has no descriptor of a VA space of nvidia-uvm")]
    NoVaSpace(u32),
    /// The process has too many of `what` to inspect, or to hold open.
    #[error("process {pid} has too many {what}: more than {max}")]
    TooMany {
        /// Process.
        pid: u32,
        /// Kind of things that are too many.
        what: &'static str,
        /// Limit.
        max: usize,
    },
    /// The process has several VA spaces, and it is unknown which of them are its parent's.
    #[error("process {pid} has several VA spaces, and which of them it was forked with is unknown: {source}")]
    UnknownOwner {
        /// Process.
        pid: u32,
        /// Error of the comparison.
        source: io::Error,
    },
    /// A device of the driver cannot be opened.
    #[error("cannot open {path}: {source}")]
    Device {
        /// Device.
        path: &'static str,
        /// Error of opening.
        source: io::Error,
    },
    /// The call did not reach the driver.
    #[error("{request} failed: {source}")]
    Call {
        /// Name of the call in the driver.
        request: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The driver failed the call.
    #[error("{request} failed: the driver returned {status}")]
    Refused {
        /// Name of the call in the driver.
        request: &'static str,
        /// Status from the driver.
        status: Status,
    },
    /// The parameter blocks of that version are not known.
    #[error("driver {0} is not supported: the layout of its calls is unknown")]
    UnknownVersion(String),
}

/// The driver's `NV_STATUS`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Status(pub(crate) u32);

impl Status {
    /// Success.
    pub const OK: Self = Self(0);
    /// Call for another kind of file.
    pub const ILLEGAL_ACTION: Self = Self(0x16);
    /// Invalid part of the request.
    pub const INVALID_ARGUMENT: Self = Self(0x1f);
    /// No managed memory at the addresses; also the status of all addresses of a VA space whose
    /// process has exited.
    pub const INVALID_ADDRESS: Self = Self(0x1e);
    /// No free memory on the GPU or, if host memory was needed, on the host.
    pub const NO_MEMORY: Self = Self(0x51);

    fn name(self) -> Option<&'static str> {
        // nvstatuscodes.h
        Some(match self.0 {
            0 => "NV_OK",
            0x03 => "NV_ERR_BUSY_RETRY",
            0x16 => "NV_ERR_ILLEGAL_ACTION",
            0x1b => "NV_ERR_INSUFFICIENT_PERMISSIONS",
            0x1e => "NV_ERR_INVALID_ADDRESS",
            0x1f => "NV_ERR_INVALID_ARGUMENT",
            0x26 => "NV_ERR_INVALID_DEVICE",
            0x40 => "NV_ERR_INVALID_STATE",
            0x51 => "NV_ERR_NO_MEMORY",
            0x56 => "NV_ERR_NOT_SUPPORTED",
            _ => return None,
        })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#x} (nvstatuscodes.h)", self.0),
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// UUID of a processor in the driver.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Uuid([u8; 16]);

impl Uuid {
    /// UUID of the CPU (`NV_PROCESSOR_UUID_CPU_DEFAULT`).
    pub const CPU: Self = Self(0xa65e_0f4e_d7d4_7ba2_5047_412c_142a_7773_u128.to_be_bytes());

    /// UUID of its bytes, in written order.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Bytes, in written order.
    #[must_use]
    pub const fn bytes(self) -> [u8; 16] {
        self.0
    }
}

/// UUID of a GPU in the format of nvidia-smi.
impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = u128::from_be_bytes(self.0);
        let part = |low: u32, digits: u32| (hex >> low) & ((1 << (4 * digits)) - 1);
        write!(
            f,
            "GPU-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            part(96, 8),
            part(80, 4),
            part(64, 4),
            part(48, 4),
            part(0, 12)
        )
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Error: the text is not a UUID of a GPU.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{0:?} is not a UUID of a GPU, such as GPU-9a317702-d43c-8e11-b055-6f201caa9401")]
pub struct NotUuid(String);

impl FromStr for Uuid {
    type Err = NotUuid;

    fn from_str(text: &str) -> Result<Self, NotUuid> {
        let parse = || {
            let rest = text.strip_prefix("GPU-").or_else(|| text.strip_prefix("MIG-"))?;
            let is_shaped = rest.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
            let digits = rest.replace('-', "");
            let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            u128::from_str_radix(&digits, 16).ok().filter(|_| is_shaped && is_hex)
        };
        parse().map(|hex| Self(hex.to_be_bytes())).ok_or_else(|| NotUuid(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuid_round_trips_through_text() {
        let text = "GPU-9a317702-d43c-8e11-b055-6f201caa9401";
        assert_eq!(text.parse::<Uuid>().unwrap().to_string(), text);
        assert_eq!(format!("MIG{}", &text[3..]).parse::<Uuid>().unwrap().to_string(), text);
        for bad in ["", "GPU-", "9a317702-d43c-8e11-b055-6f201caa9401", "GPU-9a317702d43c8e11b0556f201caa9401"] {
            assert_eq!(bad.parse::<Uuid>(), Err(NotUuid(bad.to_owned())));
        }
        assert!("GPU-+a317702-d43c-8e11-b055-6f201caa9401".parse::<Uuid>().is_err());
    }

    #[test]
    fn known_statuses_display_by_name() {
        let refused = |status| UvmError::Refused { request: "UVM_MIGRATE", status }.to_string();
        assert_eq!(refused(Status::INVALID_ADDRESS), "UVM_MIGRATE failed: the driver returned NV_ERR_INVALID_ADDRESS");
        assert_eq!(refused(Status(0x77)), "UVM_MIGRATE failed: the driver returned 0x77 (nvstatuscodes.h)");
    }
}
