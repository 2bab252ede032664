//! Listeners: the socket and TCP.

use std::{io, net::SocketAddr, os::unix::net::UnixListener, path::PathBuf, time::Duration};

use anyhow::{Context, anyhow, bail};
use config::value::{AbsolutePath, GroupName, Listen};
use listenfd::ListenFd;
use sys::reason;
use tokio::{net::TcpListener, sync::watch, task::JoinSet, time};
use web::{
    Service, Socket, Trusted, Warning, Warnings,
    server::{self, Limits},
};

use crate::VERSION;

/// Listener over TCP, and its address: with port 0, the kernel chooses a port.
type Bound = (TcpListener, SocketAddr);

/// All listeners.
pub(crate) struct Listeners {
    socket: Option<(Socket, PathBuf)>,
    /// Requested TCP address, with the listener or the reason why it is unavailable.
    tcp: Option<(SocketAddr, Result<Bound, String>)>,
}

impl Listeners {
    /// Listens on the socket, and over TCP if possible.
    ///
    /// # Errors
    /// If the socket is unavailable, or there is no listener at all.
    pub(crate) async fn bind(listen: Listen, config: &config::Socket) -> anyhow::Result<Self> {
        let socket = if config.enabled { Some(socket(config).await?) } else { None };
        if socket.is_none() && inherited()?.is_some() {
            tracing::warn!(
                "nobody serves the socket of systemd's unit, as socket.enabled is false: disable uvmd.socket"
            );
        }
        let tcp = match listen {
            Listen::None => None,
            Listen::On(address) => match tcp(address).await {
                Err(unavailable) if socket.is_none() => bail!(unavailable),
                tcp => Some((address, tcp)),
            },
        };
        Ok(Self { socket, tcp })
    }

    /// Serves on all of them until the sender of `stopped` is dropped.
    pub(crate) fn serve(
        self,
        service: &Service,
        warnings: Warnings,
        stopped: &watch::Receiver<()>,
        servers: &mut JoinSet<()>,
    ) {
        if let Some((socket, path)) = self.socket {
            servers.spawn(server::serve(socket, service.on_socket(), Limits::default(), stop(stopped.clone())));
            tracing::info!("uvmd {VERSION} serves on {}", path.display());
        }
        let (service, stopped) = (service.clone(), stopped.clone());
        match self.tcp {
            Some((_, Ok(bound))) => {
                log_serving(&bound);
                servers.spawn(serve_tcp(bound, service, stopped));
            }
            Some((address, Err(reason))) => {
                let unavailable = Unavailable::new(address, &reason, warnings);
                servers.spawn(async move {
                    tokio::select! {
                        bound = unavailable.when_available() => {
                            log_serving(&bound);
                            serve_tcp(bound, service, stopped).await;
                        }
                        () = stop(stopped.clone()) => {}
                    }
                });
            }
            None => {}
        }
    }
}

fn log_serving((_, address): &Bound) {
    tracing::info!("uvmd {VERSION} serves on http://{address}");
}

/// Serves over TCP until the sender is dropped.
async fn serve_tcp((listener, address): Bound, service: Service, stopped: watch::Receiver<()>) {
    server::serve(listener, service.on_tcp(address), Limits::default(), stop(stopped)).await;
}

/// Completes once the sender is dropped.
async fn stop(mut stopped: watch::Receiver<()>) {
    let _ = stopped.changed().await;
}

/// Pause between two attempts to bind an address: at first, and at most.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_mins(1);

/// Binds this address.
///
/// # Errors
/// Reason why it cannot be bound, and the remedy.
async fn tcp(listen: SocketAddr) -> Result<Bound, String> {
    let advice = |error: &io::Error| match error.kind() {
        io::ErrorKind::AddrInUse => "another program, perhaps another uvmd, is there; stop it or choose with --listen",
        io::ErrorKind::AddrNotAvailable => "this machine has no such address; choose with --listen",
        io::ErrorKind::PermissionDenied => "ports below 1024 need CAP_NET_BIND_SERVICE; choose with --listen",
        _ => "choose with --listen",
    };
    let bound = async {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    bound.await.map_err(|error| format!("cannot listen on {listen}: {}: {}", reason(&error), advice(&error)))
}

/// Unavailable TCP address. A warning is active meanwhile.
struct Unavailable {
    listen: SocketAddr,
    warnings: Warnings,
    /// Last logged state.
    logged: String,
}

impl Unavailable {
    /// Creates one with this reason.
    fn new(listen: SocketAddr, reason: &str, warnings: Warnings) -> Self {
        let mut unavailable = Self { listen, warnings, logged: String::new() };
        unavailable.warn(reason);
        unavailable
    }

    fn warn(&mut self, reason: &str) {
        let message = format!("{reason}; the socket is served, and the address tried again");
        if self.logged != message {
            tracing::warn!("{message}");
            self.logged.clone_from(&message);
        }
        self.warnings.raise(Warning::TcpUnavailable, message);
    }

    /// Binds the address once it is available. The first retry is after a second, then after
    /// growing pauses, up to a minute.
    async fn when_available(mut self) -> Bound {
        let mut pause = PAUSE_MIN;
        loop {
            time::sleep(pause).await;
            match tcp(self.listen).await {
                Ok(bound) => {
                    self.warnings.clear(Warning::TcpUnavailable);
                    return bound;
                }
                Err(reason) => self.warn(&reason),
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// Unix socket with its path: that of a socket unit of systemd, else one bound at `socket.path`.
async fn socket(socket: &config::Socket) -> anyhow::Result<(Socket, PathBuf)> {
    const ADVICE: &str = "choose with --set socket.path=PATH, or do without by --set socket.enabled=false";
    let config::Socket { enabled: _, path: AbsolutePath(path), group, write_group } = socket;
    let readers = group.as_ref().map(|group| gid("socket.group", group)).transpose()?;
    let writers = write_group.as_ref().map(|group| gid("socket.write_group", group)).transpose()?;
    let trusted = Trusted { uid: uzers::get_effective_uid(), readers, writers };
    if let Some(listener) = inherited()? {
        let address = listener.local_addr().ok();
        let path = address.as_ref().and_then(|address| address.as_pathname()).unwrap_or(path).to_owned();
        let socket = Socket::inherited(listener, trusted).context("cannot serve on the socket of systemd's unit")?;
        return Ok((socket, path));
    }
    let bound = Socket::bind(path, trusted).await.map_err(|error| anyhow!("{error}: {ADVICE}"))?;
    Ok((bound, path.clone()))
}

/// Socket that systemd passes: `sd_listen_fds(3)`.
fn inherited() -> anyhow::Result<Option<UnixListener>> {
    ListenFd::from_env().take_unix_listener(0).context("systemd passes a descriptor that is no Unix stream socket")
}

fn gid(option: &str, GroupName(name): &GroupName) -> anyhow::Result<u32> {
    let known = uzers::get_group_by_name(name).map(|group| group.gid());
    known.or_else(|| name.parse().ok()).ok_or_else(|| anyhow!("{option}: this node has no group {name}"))
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn occupied_address_is_retried_with_growing_pauses_until_it_is_free() {
        let (taken, address) = tcp("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let reason = tcp(address).await.unwrap_err();
        assert!(reason.contains("address already in use"), "{reason}");
        let (warnings, start) = (Warnings::default(), Instant::now());
        let is_free_after = async {
            // The attempts are after 1, 3, 7, 15, 31, 63, 123 and 183 seconds.
            time::sleep(Duration::from_secs(124)).await;
            assert!(warnings.is_active(Warning::TcpUnavailable));
            drop(taken);
        };
        let had = Unavailable::new(address, &reason, warnings.clone()).when_available();
        let ((), (_, had)) = tokio::join!(is_free_after, had);
        assert_eq!((had, start.elapsed().as_secs()), (address, 183));
        assert!(!warnings.is_active(Warning::TcpUnavailable));
    }
}
