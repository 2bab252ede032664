//! Who sent a request, for whoever writes down what was asked for.

use std::fmt;

use super::Peer;

/// Who sent a request, and what they showed for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requester {
    /// From where.
    pub peer: Peer,
    /// By what right.
    pub credential: Credential,
}

/// What somebody showed to be let do something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Credential {
    /// Nothing.
    #[default]
    None,
    /// The user and groups that the kernel knows on the Unix socket.
    Socket,
    /// The token of `auth.token_file`.
    ReadToken,
    /// The token of `auth.write_token_file`.
    WriteToken,
    /// A token that is none of these.
    WrongToken,
}

impl Credential {
    /// Its name in the audit log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Socket => "socket",
            Self::ReadToken => "read_token",
            Self::WriteToken => "write_token",
            Self::WrongToken => "wrong_token",
        }
    }
}

impl fmt::Display for Requester {
    /// As anybody may read it: without the address.
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
        }
    }
}
