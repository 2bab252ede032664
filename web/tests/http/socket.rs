//! The Unix socket, and credentials of its peers. Needs root to switch users.

use std::{
    env, fs,
    io::{Read, Write},
    os::unix::{
        fs::{PermissionsExt, chown, symlink},
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use tempfile::TempDir;
use tokio::{
    net::UnixSocket,
    sync::oneshot,
    task::JoinHandle,
    time::{sleep, timeout},
};
use web::{
    Service, Socket, SocketError, Trusted,
    server::{Limits, serve},
};

use crate::support::{always, busy, node};

/// Unused ids: no user and no group of this machine.
const UID: u32 = 64_001;
const GID: u32 = 64_002;
const GROUP: u32 = 64_003;
const WRITERS: u32 = 64_004;

/// Directory that any user may list, like that of the socket.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

fn trusted() -> Trusted {
    Trusted { uid: UID, readers: Some(GROUP), writers: Some(WRITERS) }
}

struct Server {
    path: PathBuf,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    folder: TempDir,
}

impl Server {
    async fn start() -> Self {
        let folder = folder();
        let path = folder.path().join("run/uvmd.sock");
        let socket = Socket::bind(&path, trusted()).await.unwrap();
        let site = Service::new(node(), always(busy())).on_socket();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(serve(socket, site, Limits::default(), async { drop(stopped.await) }));
        Self { path, stop, task, folder }
    }

    /// Statuses of responses to a client with this user, group and supplementary groups.
    async fn request_as(&self, uid: u32, gid: u32, groups: &str) -> (String, bool) {
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={uid}"), format!("--regid={gid}")]);
        command.arg(if groups.is_empty() { "--clear-groups".to_owned() } else { format!("--groups={groups}") });
        command.args(["curl", "-s", "--max-time", "10", "--unix-socket"]).arg(&self.path);
        command.args(["-w", "\n%{http_code}", "http://localhost/api/v1/processes/20/ranges"]);
        command.args(["--next", "-s", "--unix-socket"]).arg(&self.path).arg("http://gpu-17/api/v1/status");
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text} {}", String::from_utf8_lossy(&output.stderr));
        let (response, status) = text.rsplit_once('\n').unwrap();
        assert!(response.contains("\"time\"") || response.contains("\"detail\""), "{response}");
        (status.get(..3).unwrap().to_owned(), status.contains("\"can_read\":true"))
    }
}

/// Whether the test may switch users. Prints a skip if not.
fn may_switch_users() -> bool {
    const CAP_SETUID: u64 = 1 << 7;
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    let may = u64::from_str_radix(effective.trim(), 16).unwrap() & CAP_SETUID != 0;
    if !may {
        assert!(env::var("UVMD_TEST_REQUIRE_ROOT").as_deref() != Ok("1"), "this is not root");
        println!("skipped: needs root");
    }
    may
}

#[tokio::test]
async fn root_the_services_user_and_the_group_have_read_permission() {
    if !may_switch_users() {
        return;
    }
    let server = Server::start().await;
    let other_groups: Vec<String> = (70_000..70_200).map(|group| group.to_string()).collect();
    let many = |last: &str| format!("{},{last}", other_groups.join(","));
    for (uid, gid, groups, may_read) in [
        (0, 0, "", true),
        (UID, GID, "", true),
        (UID + 1, GROUP, "", true),
        (UID + 1, GID, &GROUP.to_string(), true),
        (UID + 1, GID, &many(&GROUP.to_string()), true),
        (UID + 1, GID, "", false),
        (UID + 1, GID, &many(&GID.to_string()), false),
        // A group id is not a user id, nor the other way round; and root's group is not root.
        (GROUP, UID, "0", false),
    ] {
        let status = if may_read { "200" } else { "403" };
        assert_eq!(server.request_as(uid, gid, groups).await, (status.to_owned(), may_read), "{uid} {gid} {groups}");
    }
}

#[tokio::test]
async fn any_user_may_connect_and_the_directory_is_created() {
    let server = Server::start().await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&server.path), 0o666);
    assert_eq!(mode(server.path.parent().unwrap()), 0o755);
}

#[tokio::test]
async fn a_stale_socket_is_replaced() {
    let folder = folder();
    let path = folder.path().join("uvmd.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(UnixStream::connect(&path).is_err());
    let _socket = Socket::bind(&path, trusted()).await.unwrap();
    UnixStream::connect(&path).unwrap();
}

#[tokio::test]
async fn a_socket_in_use_is_not_replaced() {
    let folder = folder();
    let path = folder.path().join("uvmd.sock");
    let _another = UnixListener::bind(&path).unwrap();
    assert!(matches!(Socket::bind(&path, trusted()).await, Err(SocketError::Taken(_))));
    UnixStream::connect(&path).unwrap();

    let path = folder.path().join("second.sock");
    let first = Socket::bind(&path, trusted()).await.unwrap();
    let error = Socket::bind(&path, trusted()).await.unwrap_err();
    assert_eq!(error.to_string(), format!("another uvmd serves on {}", path.display()));
    drop(first);
    assert!(!path.exists());
    Socket::bind(&path, trusted()).await.unwrap();
}

#[tokio::test]
async fn a_socket_with_a_full_queue_is_not_waited_for() {
    let folder = folder();
    let path = folder.path().join("uvmd.sock");
    let stalled = UnixSocket::new_stream().unwrap();
    stalled.bind(&path).unwrap();
    let _never_accepts = stalled.listen(0).unwrap();
    let _fills_the_queue = UnixStream::connect(&path).unwrap();
    let bound = timeout(Duration::from_secs(10), Socket::bind(&path, trusted())).await;
    assert!(matches!(bound.expect("it waits"), Err(SocketError::Taken(_))));
}

#[tokio::test]
async fn a_directory_that_others_may_write_is_rejected() {
    let folder = folder();
    let path = folder.path().join("uvmd.sock");
    // In a sticky directory no user can replace the socket, but any user could create its file or
    // lock first.
    for (mode, is_safe) in [(0o755, true), (0o1777, false), (0o777, false), (0o775, false), (0o702, false)] {
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
        match Socket::bind(&path, trusted()).await {
            Ok(_) => assert!(is_safe, "{mode:o}"),
            Err(error) => {
                assert!(!is_safe && matches!(error, SocketError::UnfitFolder(..)), "{mode:o}: {error}");
                let expected =
                    format!("{} is not safe for the socket: other users may change", folder.path().display());
                assert!(error.to_string().starts_with(&expected), "{error}");
            }
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), usize::from(is_safe), "{mode:o}");
        let _ = fs::remove_file(folder.path().join("uvmd.sock.lock"));
    }
}

#[tokio::test]
async fn a_directory_of_another_user_is_rejected() {
    if !may_switch_users() {
        return;
    }
    let folder = folder();
    chown(folder.path(), Some(UID), Some(GID)).unwrap();
    let error = Socket::bind(&folder.path().join("uvmd.sock"), trusted()).await.unwrap_err().to_string();
    assert!(error.ends_with(&format!("and belongs to uid {UID}")), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_lock_that_is_a_link_or_another_users_is_rejected() {
    let folder = folder();
    let (path, lock) = (folder.path().join("uvmd.sock"), folder.path().join("uvmd.sock.lock"));
    let elsewhere = folder.path().join("elsewhere");
    symlink(&elsewhere, &lock).unwrap();
    let error = Socket::bind(&path, trusted()).await.unwrap_err().to_string();
    assert_eq!(error, format!("cannot lock {}: it is a symbolic link; name the file itself", lock.display()));
    assert!(!elsewhere.exists() && !path.exists());
    if !may_switch_users() {
        return;
    }
    fs::remove_file(&lock).unwrap();
    fs::write(&lock, "").unwrap();
    chown(&lock, Some(UID), Some(GID)).unwrap();
    let error = Socket::bind(&path, trusted()).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot lock {}: it must belong to", lock.display())), "{error}");
}

#[tokio::test]
async fn a_file_that_is_not_a_socket_is_not_replaced() {
    let folder = folder();
    let path = folder.path().join("uvmd.sock");
    fs::write(&path, "notes").unwrap();
    assert!(matches!(Socket::bind(&path, trusted()).await, Err(SocketError::NoSocket(_))));
    assert_eq!(fs::read_to_string(&path).unwrap(), "notes");
    // Not even a link to a socket: its owner may change its target.
    let link = folder.path().join("link.sock");
    symlink(folder.path().join("nowhere"), &link).unwrap();
    assert!(matches!(Socket::bind(&link, trusted()).await, Err(SocketError::NoSocket(_))));
}

#[tokio::test]
async fn a_name_that_is_too_long_is_a_clear_error() {
    let folder = folder();
    let path = folder.path().join("x".repeat(120));
    let error = Socket::bind(&path, trusted()).await.unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot listen on {}: ", path.display())), "{error}");
}

#[tokio::test]
async fn a_server_removes_its_socket_and_no_other_at_its_end() {
    let server = Server::start().await;
    let path = server.path.clone();
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let response = tokio::task::spawn_blocking(move || {
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut buffer = [0; 1024];
        let length = stream.read(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    });
    assert!(response.await.unwrap().starts_with("HTTP/1.1 200 OK"));
    drop(server.stop);
    server.task.await.unwrap();
    assert!(!path.exists());

    let server = Server::start().await;
    fs::remove_file(&server.path).unwrap();
    // The file system may reuse the inode's number at once.
    sleep(Duration::from_millis(1)).await;
    let other = server.path.with_extension("other");
    fs::write(&other, "").unwrap();
    fs::rename(&other, &server.path).unwrap();
    let Server { path, stop, task, folder: _folder } = server;
    drop(stop);
    task.await.unwrap();
    assert!(path.is_file());
}
