//! Where clients come in.

use std::{io, net::SocketAddr, path::PathBuf};

use anyhow::{Context, anyhow};
use config::value::{AbsolutePath, GroupName};
use sys::reason;
use tokio::net::TcpListener;
use web::{Socket, Trusted};

/// Over TCP, and at which address.
pub(crate) async fn tcp(listen: SocketAddr) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let advice = |error: &io::Error| match error.kind() {
        io::ErrorKind::AddrInUse => "another program, perhaps another uvmd, is there; stop it or choose with --listen",
        io::ErrorKind::AddrNotAvailable => "this machine has no such address; choose with --listen",
        io::ErrorKind::PermissionDenied => "ports below 1024 need CAP_NET_BIND_SERVICE; choose with --listen",
        _ => "choose with --listen",
    };
    let listener = TcpListener::bind(listen)
        .await
        .map_err(|error| anyhow!("cannot listen on {listen}: {}: {}", reason(&error), advice(&error)))?;
    // Port 0 asks the kernel for one.
    let address = listener.local_addr().context("cannot read the address bound")?;
    Ok((listener, address))
}

/// On the machine itself, and where.
pub(crate) async fn socket(socket: &config::Socket) -> anyhow::Result<(Socket, PathBuf)> {
    const ADVICE: &str = "choose with --set socket.path=PATH, or do without by --set socket.enabled=false";
    let config::Socket { enabled: _, path: AbsolutePath(path), group, write_group } = socket;
    let readers = group.as_ref().map(|group| gid("socket.group", group)).transpose()?;
    let writers = write_group.as_ref().map(|group| gid("socket.write_group", group)).transpose()?;
    let trusted = Trusted { uid: uzers::get_effective_uid(), readers, writers };
    let bound = Socket::bind(path, trusted).await.map_err(|error| anyhow!("{error}: {ADVICE}"))?;
    Ok((bound, path.clone()))
}

fn gid(option: &str, GroupName(name): &GroupName) -> anyhow::Result<u32> {
    let known = uzers::get_group_by_name(name).map(|group| group.gid());
    known.or_else(|| name.parse().ok()).ok_or_else(|| anyhow!("{option}: this node has no group {name}"))
}
