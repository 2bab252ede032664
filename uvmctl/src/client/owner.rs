//! Trusted owners of a Unix socket. A user with write access to a socket's folder can replace the
//! socket, collect tokens and forge responses of uvmd.

use std::{io, os::fd::AsFd, os::unix::net::UnixStream};

/// Users trusted to serve the socket: root, the caller, and the user of `--socket-owner`.
#[derive(Clone, Debug)]
pub(crate) struct Owners(Vec<u32>);

/// Server of another user on the socket.
#[derive(Debug, thiserror::Error)]
#[error("served by uid {uid}, neither root nor you")]
pub(crate) struct Impostor {
    uid: u32,
}

impl Owners {
    pub(crate) fn new(named: Option<u32>) -> Self {
        Self([0, uzers::get_effective_uid()].into_iter().chain(named).collect())
    }

    /// Checks the user that called `listen` on the socket, before anything is sent.
    ///
    /// # Errors
    /// [`Impostor`] for any other user.
    pub(super) fn check(&self, stream: &UnixStream) -> io::Result<()> {
        let uid = sys::peer::uid(stream.as_fd())?;
        if self.0.contains(&uid) { Ok(()) } else { Err(io::Error::other(Impostor { uid })) }
    }
}

/// Parses a user's name or number.
pub(crate) fn parse_user(text: &str) -> Result<u32, String> {
    let known = uzers::get_user_by_name(text).map(|user| user.uid());
    known.or_else(|| text.parse().ok()).ok_or_else(|| "there is no such user on this node".to_owned())
}

#[cfg(test)]
mod tests {
    use std::{io::Read, os::unix::net::UnixListener, thread};

    use super::*;
    use crate::client::{Endpoint, Error, testing};

    #[test]
    fn an_untrusted_server_receives_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("uvmd.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || {
            let mut received = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
            received
        });
        let client = testing::client(Endpoint::Socket(path.clone()), Owners(Vec::new()));
        let error = client.get::<()>("/api/v1/status").err().unwrap();
        assert!(matches!(error, Error::Untrusted { .. }), "{error}");
        let own = uzers::get_effective_uid();
        let message = format!("{} is not trusted as uvmd: served by uid {own}", path.display());
        assert!(error.to_string().starts_with(&message) && error.to_string().contains("--socket-owner"), "{error}");
        assert!(server.join().unwrap().is_empty());
    }

    #[test]
    fn root_the_caller_and_the_named_user_are_trusted() {
        let Owners(owners) = Owners::new(Some(64_001));
        assert_eq!(owners, [0, uzers::get_effective_uid(), 64_001]);
        assert_eq!((parse_user("root"), parse_user("64001")), (Ok(0), Ok(64_001)));
        assert!(parse_user("no such user").is_err());
    }
}
