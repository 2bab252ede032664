//! Peer of a Unix socket.

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

/// User of the peer when it connected, or when it made the socket listen.
///
/// # Errors
/// If this is not a connected Unix socket.
#[expect(unsafe_code, reason = "a socket option without a safe wrapper")]
pub fn uid(socket: BorrowedFd<'_>) -> io::Result<u32> {
    // An impossible user, which is also the kernel's answer for a socket without a peer.
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut bytes = libc::socklen_t::try_from(size_of_val(&peer)).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the kernel writes at most `bytes` bytes, which `peer` has, and then their number into
    // `bytes`.
    let returned = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut bytes,
        )
    };
    match (returned, peer.uid) {
        (0, u32::MAX) => Err(io::ErrorKind::NotConnected.into()),
        (0, uid) => Ok(uid),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Supplementary groups of the peer when it connected. Later changes do not matter, unlike with its
/// process id.
///
/// # Errors
/// If this is not a connected Unix socket.
#[expect(unsafe_code, reason = "a socket option without a safe wrapper")]
pub fn groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    // Enough for nearly all users; with more, the call is repeated.
    let mut groups: Vec<libc::gid_t> = vec![0; 64];
    loop {
        let room = groups.len() * size_of::<libc::gid_t>();
        let mut bytes = libc::socklen_t::try_from(room).map_err(|_| io::ErrorKind::InvalidData)?;
        // SAFETY: the kernel writes at most `bytes` bytes, which `groups` has, and then their
        // number into `bytes`.
        let returned = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let error = (returned != 0).then(io::Error::last_os_error);
        let count = bytes as usize / size_of::<libc::gid_t>();
        match error {
            None => {
                groups.truncate(count);
                return Ok(groups);
            }
            Some(error) if error.raw_os_error() == Some(libc::ERANGE) && count > groups.len() => {
                groups.resize(count, 0);
            }
            Some(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        fs,
        net::TcpListener,
        os::{
            fd::AsFd,
            unix::{fs::MetadataExt, net::UnixStream},
        },
    };

    use super::*;

    #[test]
    fn peer_groups_are_read() {
        let (here, _there) = UnixStream::pair().unwrap();
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let own = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap();
        let own: BTreeSet<u32> = own.split_whitespace().map(|group| group.parse().unwrap()).collect();
        assert_eq!(groups(here.as_fd()).unwrap().into_iter().collect::<BTreeSet<_>>(), own);
    }

    #[test]
    fn peer_user_is_read() {
        let (here, _there) = UnixStream::pair().unwrap();
        assert_eq!(uid(here.as_fd()).unwrap(), fs::metadata("/proc/self").unwrap().uid());
    }

    #[test]
    fn unconnected_socket_has_no_peer() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(groups(socket.as_fd()).is_err() && uid(socket.as_fd()).is_err());
    }
}
