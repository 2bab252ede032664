//! Senders of requests, for the audit log.

use std::fmt;

use super::Peer;

/// Sender of a request, and the credential of the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requester {
    /// Origin of the request.
    pub peer: Peer,
    /// Credential of the request.
    pub credential: Credential,
}

/// Credential of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Credential {
    /// No credential.
    #[default]
    None,
    /// User and groups of the peer on the Unix socket.
    Socket,
    /// Token of `auth.token_file`.
    ReadToken,
    /// Token of `auth.write_token_file`.
    WriteToken,
    /// A token that is neither of these.
    WrongToken,
    /// An unknown user or a wrong password, where the metrics require one.
    WrongPassword,
}

impl Credential {
    /// Name in the audit log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Socket => "socket",
            Self::ReadToken => "read_token",
            Self::WriteToken => "write_token",
            Self::WrongToken => "wrong_token",
            Self::WrongPassword => "wrong_password",
        }
    }
}

impl fmt::Display for Requester {
    /// Description without the address, which requires no permission.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.peer {
            Peer::Local { uid, .. } => write!(f, "uid {uid} on the socket")?,
            Peer::Remote(_) | Peer::Unknown => f.write_str("somebody")?,
        }
        match self.credential {
            Credential::None | Credential::Socket => Ok(()),
            Credential::ReadToken => f.write_str(" with the read token"),
            Credential::WriteToken => f.write_str(" with the write token"),
            Credential::WrongToken => f.write_str(" with a wrong token"),
            Credential::WrongPassword => f.write_str(" with a wrong password"),
        }
    }
}
