//! Where clients come in.

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{anyhow, bail};
use config::value::{AbsolutePath, GroupName, Listen};
use sys::reason;
use tokio::{net::TcpListener, sync::watch, task::JoinSet, time};
use web::{
    Service, Socket, Trusted, Warning, Warnings,
    server::{self, Limits},
};

use crate::VERSION;

/// A listener over TCP, and its address: port 0 asks the kernel for one.
type Bound = (TcpListener, SocketAddr);

/// All the ways in.
pub(crate) struct Listeners {
    socket: Option<(Socket, PathBuf)>,
    /// The address over TCP; what was bound, or why it cannot be had.
    tcp: Option<(SocketAddr, Result<Bound, String>)>,
}

impl Listeners {
    /// Listens on the socket, and over TCP if that can be had.
    ///
    /// # Errors
    /// If the socket cannot be had, or nothing at all.
    pub(crate) async fn bind(listen: Listen, config: &config::Socket) -> anyhow::Result<Self> {
        let socket = if config.enabled { Some(socket(config).await?) } else { None };
        let tcp = match listen {
            Listen::None => None,
            Listen::On(address) => match tcp(address).await {
                Err(unavailable) if socket.is_none() => bail!(unavailable),
                tcp => Some((address, tcp)),
            },
        };
        Ok(Self { socket, tcp })
    }

    /// Serves on all of them until the sender of `stopped` is gone.
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
                say_serves(&bound);
                servers.spawn(serve_tcp(bound, service, stopped));
            }
            Some((address, Err(reason))) => {
                let unavailable = Unavailable::new(address, &reason, warnings);
                servers.spawn(async move {
                    tokio::select! {
                        bound = unavailable.when_available() => {
                            say_serves(&bound);
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

fn say_serves((_, address): &Bound) {
    tracing::info!("uvmd {VERSION} serves on http://{address}");
}

/// Serves over TCP until the sender is gone.
async fn serve_tcp((listener, address): Bound, service: Service, stopped: watch::Receiver<()>) {
    server::serve(listener, service.on_tcp(address), Limits::default(), stop(stopped)).await;
}

/// Done once the sender is gone.
async fn stop(mut stopped: watch::Receiver<()>) {
    let _ = stopped.changed().await;
}

/// Between two attempts to have an address: at first, and at most.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_mins(1);

/// Listens on this address.
///
/// # Errors
/// Binds the address; an error says why it cannot be bound, and the remedy.
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

/// An address that cannot be had now. Meanwhile there is a warning.
struct Unavailable {
    listen: SocketAddr,
    warnings: Warnings,
    /// Last logged state.
    logged: String,
}

impl Unavailable {
    /// Pending, for this reason.
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

    /// Listens on it once it can be had. It is asked for again after a second, and then after longer and longer pauses, up to a minute.
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

/// On the machine itself, and where.
async fn socket(socket: &config::Socket) -> anyhow::Result<(Socket, PathBuf)> {
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

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_address_that_is_taken_is_asked_for_after_longer_and_longer_pauses_until_it_is_free() {
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
