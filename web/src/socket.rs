//! The Unix socket: for those on this machine, whom the kernel vouches for.
//!
//! Anybody may connect, and is told what everybody is told over TCP. Who may read everything, and change things, is
//! decided by what the peer was when it connected.

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

/// Who may do what, beside root, who may do everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trusted {
    /// uvmd's own user, who may do everything.
    pub uid: u32,
    /// Members of this group may read everything.
    pub readers: Option<u32>,
    /// Members of this group may do everything.
    pub writers: Option<u32>,
}

/// Why there is no socket.
#[derive(Debug, Error)]
pub enum SocketError {
    /// The folder cannot be made.
    #[error("cannot make {}: {}", .0.display(), sys::reason(.1))]
    Folder(PathBuf, #[source] io::Error),
    /// Others than root and uvmd's own user could replace the socket or a folder above it, or take its name or that of its lock first.
    #[error("{} is not fit for the socket: {}", .0.display(), sys::reason(.1))]
    UnfitFolder(PathBuf, #[source] io::Error),
    /// The file that stands for the lock is not uvmd's, or cannot be used.
    #[error("cannot lock {}: {}", .0.display(), sys::reason(.1))]
    Lock(PathBuf, #[source] io::Error),
    /// Another one holds the socket.
    #[error("another uvmd serves on {}", .0.display())]
    Taken(PathBuf),
    /// Somebody else's file has that name.
    #[error("{} exists and is not a socket", .0.display())]
    NoSocket(PathBuf),
    /// The system refuses.
    #[error("cannot listen on {}: {}", .0.display(), sys::reason(.1))]
    Bind(PathBuf, #[source] io::Error),
}

/// A socket that is served on. It is removed when dropped.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    trusted: Trusted,
    path: PathBuf,
    /// Device and inode, by which it is known to be this one still.
    file: (u64, u64),
    /// Held for as long as this is: two that start at once must not each find the other's socket stale.
    _lock: Lock,
}

impl Socket {
    /// Serves on `path`, whose folder is made if it is not there. It must be one in which only root and uvmd's own user can put files: a sticky one
    /// such as `/tmp` is not, as anybody could take the names there first. A socket that is there and that nobody answers on was left by a uvmd that
    /// was killed, and is replaced.
    ///
    /// # Errors
    /// See [`SocketError`].
    pub async fn bind(path: &Path, trusted: Trusted) -> Result<Self, SocketError> {
        if let Some(folder) = path.parent() {
            make(folder)?;
        }
        let failed = |error| SocketError::Bind(path.to_owned(), error);
        let lock = lock(path)?;
        match fs::symlink_metadata(path) {
            Ok(there) if !there.file_type().is_socket() => return Err(SocketError::NoSocket(path.to_owned())),
            Ok(_) => match UnixStream::connect(path).await {
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    fs::remove_file(path).map_err(failed)?;
                }
                Ok(_) => return Err(SocketError::Taken(path.to_owned())),
                // Somebody has it and takes no connection: its queue is full. It is not waited for.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(SocketError::Taken(path.to_owned()));
                }
                Err(error) => return Err(failed(error)),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        // It is who connects that matters, not who may.
        fs::set_permissions(path, Permissions::from_mode(0o666)).map_err(failed)?;
        let file = id(path).map_err(failed)?;
        Ok(Self { listener, trusted, path: path.to_owned(), file, _lock: lock })
    }

    /// The next connection, and whose it is.
    pub(crate) async fn accept(&self) -> io::Result<(UnixStream, Peer)> {
        let (stream, _) = self.listener.accept().await?;
        // Whom the kernel does not name is nobody.
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

impl Drop for Socket {
    fn drop(&mut self) {
        // Another may have been put there by hand.
        if id(&self.path).is_ok_and(|file| file == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Makes a folder if it is not there, which everybody may look into. Nobody else may put anything there.
fn make(folder: &Path) -> Result<(), SocketError> {
    let failed = |error| SocketError::Folder(folder.to_owned(), error);
    let unfit = |error| SocketError::UnfitFolder(folder.to_owned(), error);
    private::check_ancestors(folder).map_err(unfit)?;
    DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(failed)?;
    private::check_folder(folder).map_err(unfit)
}

fn id(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
}

/// Beside the socket, in a file that only uvmd's own user can open.
fn lock(path: &Path) -> Result<Lock, SocketError> {
    let lock = private::beside(path, "lock");
    match private::lock(&lock) {
        Ok(held) => held.ok_or_else(|| SocketError::Taken(path.to_owned())),
        Err(error) => Err(SocketError::Lock(lock, error)),
    }
}
