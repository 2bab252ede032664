//! Outcome of a call of the driver that another process made.

use std::io;

use super::{Status, UvmError};

/// Outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    Refused(Status),
    NotCalled { errno: i32 },
}

impl Outcome {
    pub(crate) fn of(result: Result<(), UvmError>) -> Self {
        match result {
            Ok(()) => Self::Done,
            Err(UvmError::Refused { status, .. }) => Self::Refused(status),
            Err(UvmError::Call { source, .. }) => Self::NotCalled { errno: source.raw_os_error().unwrap_or(libc::EIO) },
            Err(_) => Self::NotCalled { errno: libc::EIO },
        }
    }

    pub(crate) fn result(self, request: &'static str) -> Result<(), UvmError> {
        match self {
            Self::Done => Ok(()),
            Self::Refused(status) => Err(UvmError::Refused { request, status }),
            Self::NotCalled { errno } => Err(UvmError::Call { request, source: io::Error::from_raw_os_error(errno) }),
        }
    }
}
