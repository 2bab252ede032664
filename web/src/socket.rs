//! Unix socket, for clients on this machine with credentials from the kernel.
//!
//! Any user may connect, and has the permissions of a client over TCP. Read and write permission
//! depend on the credentials of the peer when it connected.

use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    os::{
        fd::AsFd,
        unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};

use sys::private::{self, Lock};
use thiserror::Error;
use tokio::net::{UnixListener, UnixStream};

use crate::auth::{Grant, Peer};

/// Users with permissions besides root, which has all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trusted {
    /// uvmd's user, which has write permission.
    pub uid: u32,
    /// Group with read permission.
    pub readers: Option<u32>,
    /// Group with write permission.
    pub writers: Option<u32>,
}

/// Reason why the socket cannot be served.
#[derive(Debug, Error)]
pub enum SocketError {
    /// Creation of the directory failed.
    #[error("cannot create {}: {}", .0.display(), sys::reason(.1))]
    Folder(PathBuf, #[source] io::Error),
    /// Users other than root and uvmd's user could replace the socket or a directory above it, or
    /// create its file or the lock file first.
    #[error("{} is not safe for the socket: {}", .0.display(), sys::reason(.1))]
    UnfitFolder(PathBuf, #[source] io::Error),
    /// The lock file is not uvmd's, or cannot be used.
    #[error("cannot lock {}: {}", .0.display(), sys::reason(.1))]
    Lock(PathBuf, #[source] io::Error),
    /// Another uvmd serves on the socket.
    #[error("another uvmd serves on {}", .0.display())]
    Taken(PathBuf),
    /// A file of this name exists and is not a socket.
    #[error("{} exists and is not a socket", .0.display())]
    NoSocket(PathBuf),
    /// The system refused to create or listen on the socket.
    #[error("cannot listen on {}: {}", .0.display(), sys::reason(.1))]
    Bind(PathBuf, #[source] io::Error),
}

/// Listening socket.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    trusted: Trusted,
    /// Its file; `None` for a socket of the service manager, which keeps the file.
    _file: Option<SocketFile>,
}

/// File of a socket that uvmd bound, which is removed when dropped.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode, which identify the file.
    file: (u64, u64),
    /// Lock held with the socket: of two instances that start at once, neither may find the other's
    /// socket stale.
    _lock: Lock,
}

impl Socket {
    /// Listens on `path`, whose directory is created if it is missing. Only root and uvmd's user
    /// may be able to create files in it: a sticky directory such as `/tmp` is rejected, as any
    /// user could create the files first. A socket that nobody listens on was left by a uvmd that
    /// was killed, and is replaced.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub async fn bind(path: &Path, trusted: Trusted) -> Result<Self, SocketError> {
        if let Some(folder) = path.parent() {
            create_directory(folder)?;
        }
        let failed = |error| SocketError::Bind(path.to_owned(), error);
        let lock = lock(path)?;
        match fs::symlink_metadata(path) {
            Ok(file) if !file.file_type().is_socket() => return Err(SocketError::NoSocket(path.to_owned())),
            Ok(_) => match UnixStream::connect(path).await {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(path).map_err(failed)?;
                }
                Ok(_) => return Err(SocketError::Taken(path.to_owned())),
                // Its listener has a full queue, and is not waited for.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(SocketError::Taken(path.to_owned()));
                }
                Err(error) => return Err(failed(error)),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        // Any user may connect; permissions depend on the peer's credentials.
        fs::set_permissions(path, Permissions::from_mode(0o666)).map_err(failed)?;
        let file = id(path).map_err(failed)?;
        let file = SocketFile { path: path.to_owned(), file, _lock: lock };
        Ok(Self { listener, trusted, _file: Some(file) })
    }

    /// Listens on a socket that the service manager bound, as systemd does for a socket unit. Its
    /// file and mode are the manager's.
    ///
    /// # Errors
    /// If the event loop cannot take it.
    pub fn inherited(listener: std::os::unix::net::UnixListener, trusted: Trusted) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener: UnixListener::from_std(listener)?, trusted, _file: None })
    }

    /// Accepts the next connection, with its peer.
    pub(crate) async fn accept(&self) -> io::Result<(UnixStream, Peer)> {
        let (stream, _) = self.listener.accept().await?;
        // A client without credentials is unidentified.
        let peer = self.trusted.peer(&stream).unwrap_or_else(|error| {
            tracing::debug!("cannot identify the client: {error}");
            Peer::Unknown
        });
        Ok((stream, peer))
    }
}

impl Trusted {
    fn peer(self, stream: &UnixStream) -> io::Result<Peer> {
        let Self { uid, readers, writers } = self;
        let peer = stream.peer_cred()?;
        let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok());
        let local = |grant| Peer::Local { uid: peer.uid(), pid, grant };
        if peer.uid() == 0 || peer.uid() == uid {
            return Ok(local(Some(Grant::Write)));
        }
        if readers.is_none() && writers.is_none() {
            return Ok(local(None));
        }
        let groups = sys::peer::groups(stream.as_fd())?;
        let is_in = |group: Option<u32>| group.is_some_and(|group| peer.gid() == group || groups.contains(&group));
        Ok(local(if is_in(writers) { Some(Grant::Write) } else { is_in(readers).then_some(Grant::Read) }))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // The file may have been replaced by hand.
        if id(&self.path).is_ok_and(|file| file == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Creates a missing directory that any user may list. No other user may create files in it.
fn create_directory(folder: &Path) -> Result<(), SocketError> {
    let failed = |error| SocketError::Folder(folder.to_owned(), error);
    let unfit = |error| SocketError::UnfitFolder(folder.to_owned(), error);
    private::check_ancestors(folder).map_err(unfit)?;
    DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(failed)?;
    private::check_folder(folder).map_err(unfit)
}

fn id(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// Lock beside the socket, in a file that only uvmd's user can open.
fn lock(path: &Path) -> Result<Lock, SocketError> {
    let lock = private::beside(path, "lock");
    match private::lock(&lock) {
        Ok(held) => held.ok_or_else(|| SocketError::Taken(path.to_owned())),
        Err(error) => Err(SocketError::Lock(lock, error)),
    }
}
