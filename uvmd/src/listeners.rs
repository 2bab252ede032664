//! Listeners: the socket, TCP, and TCP for metrics alone.

use std::{
    io,
    net::SocketAddr,
    os::unix::net::UnixListener,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use config::value::{AbsolutePath, GroupName, Listen};
use listenfd::ListenFd;
use sys::reason;
use tokio::{net::TcpListener, sync::watch, task::JoinSet, time};
use web::{
    Protection, Service, Socket, Trusted, Warning, Warnings,
    server::{self, Limits},
};

use crate::VERSION;

/// Listener over TCP, and its address: with port 0, the kernel chooses a port.
type Bound = (TcpListener, SocketAddr);

/// Options with addresses, as advice names them.
const LISTEN: &str = "--listen";
const METRICS_LISTEN: &str = "metrics.listen";

/// All listeners.
pub(crate) struct Listeners {
    socket: Option<(Socket, PathBuf)>,
    tcp: Option<Requested>,
    /// For metrics alone.
    metrics: Option<Requested>,
}

/// Requested TCP address, with the listener or the reason why it is unavailable.
type Requested = (SocketAddr, Result<Bound, String>);

/// What is served on a TCP address.
#[derive(Clone)]
enum Served {
    /// Page, API and metrics.
    All(Service),
    /// Metrics alone.
    Metrics(Service, Protection),
}

impl Listeners {
    /// Listens on the socket, and over TCP if possible.
    ///
    /// # Errors
    /// If the socket is unavailable, or there is no listener at all.
    pub(crate) async fn bind(listen: Listen, metrics: Listen, config: &config::Socket) -> anyhow::Result<Self> {
        let socket = if config.enabled { Some(socket(config).await?) } else { None };
        if socket.is_none() && inherited()?.is_some() {
            tracing::warn!(
                "nobody serves the socket of systemd's unit, as socket.enabled is false: disable uvmd.socket"
            );
        }
        let tcp = requested(listen, LISTEN, socket.is_some()).await?;
        let is_other = socket.is_some() || tcp.is_some();
        let metrics = requested(metrics, METRICS_LISTEN, is_other).await?;
        Ok(Self { socket, tcp, metrics })
    }

    /// Serves on all of them until the sender of `stopped` is dropped.
    pub(crate) fn serve(
        self,
        service: &Service,
        protection: &Protection,
        warnings: &Warnings,
        stopped: &watch::Receiver<()>,
        servers: &mut JoinSet<()>,
    ) {
        let Self { socket, tcp, metrics } = self;
        if let Some((socket, path)) = socket {
            servers.spawn(server::serve(socket, service.on_socket(), Limits::default(), stop(stopped.clone())));
            tracing::info!("uvmd {VERSION} serves on {}", path.display());
        }
        let all = tcp.map(|tcp| (tcp, Served::All(service.clone())));
        let metrics = metrics.map(|metrics| (metrics, Served::Metrics(service.clone(), protection.clone())));
        for ((address, bound), served) in all.into_iter().chain(metrics) {
            let (stopped, warnings) = (stopped.clone(), warnings.clone());
            if let Ok((_, address)) = &bound {
                served.log(*address);
            }
            servers.spawn(async move {
                let bound = match bound {
                    Ok(bound) => bound,
                    Err(reason) => {
                        let unavailable = Unavailable::new(address, &reason, &served, warnings);
                        let bound = tokio::select! {
                            bound = unavailable.when_available() => bound,
                            () = stop(stopped.clone()) => return,
                        };
                        served.log(bound.1);
                        bound
                    }
                };
                served.serve(bound, stopped).await;
            });
        }
    }
}

impl Served {
    /// Warning while the address is unavailable.
    const fn warning(&self) -> Warning {
        match self {
            Self::All(_) => Warning::TcpUnavailable,
            Self::Metrics(..) => Warning::MetricsListenerUnavailable,
        }
    }

    /// Option with the address.
    const fn option(&self) -> &'static str {
        match self {
            Self::All(_) => LISTEN,
            Self::Metrics(..) => METRICS_LISTEN,
        }
    }

    fn log(&self, address: SocketAddr) {
        match self {
            Self::All(_) => tracing::info!("uvmd {VERSION} serves on http://{address}"),
            Self::Metrics(_, protection) => {
                let scheme = if protection.has_tls() { "https" } else { "http" };
                tracing::info!("uvmd {VERSION} serves metrics alone on {scheme}://{address}/metrics");
            }
        }
    }

    /// Serves over TCP until the sender is dropped.
    async fn serve(self, (listener, address): Bound, stopped: watch::Receiver<()>) {
        let site = match self {
            Self::All(service) => service.on_tcp(address),
            Self::Metrics(service, protection) => service.metrics_on(address, &protection),
        };
        server::serve(listener, site, Limits::default(), stop(stopped)).await;
    }
}

/// Completes once the sender is dropped.
async fn stop(mut stopped: watch::Receiver<()>) {
    let _ = stopped.changed().await;
}

/// Pause between two attempts to bind an address: at first, and at most.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_mins(1);

/// Binds the address of an option, if it has one.
///
/// # Errors
/// If it cannot be bound, and there is no other listener.
async fn requested(listen: Listen, option: &str, is_other: bool) -> anyhow::Result<Option<Requested>> {
    let Listen::On(address) = listen else { return Ok(None) };
    match tcp(address, option).await {
        Err(unavailable) if !is_other => bail!(unavailable),
        bound => Ok(Some((address, bound))),
    }
}

/// Binds this address of an option.
///
/// # Errors
/// Reason why it cannot be bound, and the remedy.
async fn tcp(listen: SocketAddr, option: &str) -> Result<Bound, String> {
    let advice = |error: &io::Error| match error.kind() {
        io::ErrorKind::AddrInUse => "another program, perhaps another uvmd, is there; stop it or ",
        io::ErrorKind::AddrNotAvailable => "this machine has no such address; ",
        io::ErrorKind::PermissionDenied => "ports below 1024 need CAP_NET_BIND_SERVICE; ",
        _ => "",
    };
    let bound = async {
        let listener = TcpListener::bind(listen).await?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    };
    bound.await.map_err(|error| {
        format!("cannot listen on {listen}: {}: {}choose with {option}", reason(&error), advice(&error))
    })
}

/// Unavailable TCP address. A warning is active meanwhile.
struct Unavailable {
    listen: SocketAddr,
    option: &'static str,
    warning: Warning,
    warnings: Warnings,
    /// Last logged state.
    logged: String,
}

impl Unavailable {
    /// Creates one with this reason.
    fn new(listen: SocketAddr, reason: &str, served: &Served, warnings: Warnings) -> Self {
        let (option, warning) = (served.option(), served.warning());
        let mut unavailable = Self { listen, option, warning, warnings, logged: String::new() };
        unavailable.warn(reason);
        unavailable
    }

    fn warn(&mut self, reason: &str) {
        let served = match self.warning {
            Warning::TcpUnavailable => "the socket is served",
            _ => "everything else is served",
        };
        let message = format!("{reason}; {served}, and the address tried again");
        if self.logged != message {
            tracing::warn!("{message}");
            self.logged.clone_from(&message);
        }
        self.warnings.raise(self.warning, message);
    }

    /// Binds the address once it is available. The first retry is after a second, then after
    /// growing pauses, up to a minute.
    async fn when_available(mut self) -> Bound {
        let mut pause = PAUSE_MIN;
        loop {
            time::sleep(pause).await;
            match tcp(self.listen, self.option).await {
                Ok(bound) => {
                    self.warnings.clear(self.warning);
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
        let bound = address.as_ref().and_then(|address| address.as_pathname()).unwrap_or(path);
        if let Some(warning) = ignored_path(path, bound) {
            tracing::warn!("{warning}");
        }
        let path = bound.to_owned();
        let socket = Socket::inherited(listener, trusted).context("cannot serve on the socket of systemd's unit")?;
        return Ok((socket, path));
    }
    let bound = Socket::bind(path, trusted).await.map_err(|error| anyhow!("{error}: {ADVICE}"))?;
    Ok((bound, path.clone()))
}

/// Warning if the socket that systemd passes is at another path than the configured one.
fn ignored_path(configured: &Path, bound: &Path) -> Option<String> {
    // /var/run is a link to /run: both name one file.
    let is_same = |one: &Path, other: &Path| {
        one == other || matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
    };
    (!is_same(configured, bound)).then(|| {
        format!(
            "socket.path is ignored: systemd's unit has the socket at {}, not {}; change ListenStream= of uvmd.socket, or disable it",
            bound.display(),
            configured.display()
        )
    })
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
    use web::{Node, Snapshots};

    use super::*;

    #[test]
    fn socket_of_systemd_at_another_path_is_warned_of() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("a.sock"), folder.path().join("link"));
        let _listener = UnixListener::bind(&path).unwrap();
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        assert_eq!(ignored_path(&path, &path), None);
        assert_eq!(ignored_path(&link.join("a.sock"), &path), None);
        let warning = ignored_path(Path::new("/other"), &path).unwrap();
        assert!(warning.contains("a.sock, not /other"), "{warning}");
    }

    #[tokio::test(start_paused = true)]
    async fn occupied_address_is_retried_with_growing_pauses_until_it_is_free() {
        let (taken, address) = tcp("127.0.0.1:0".parse().unwrap(), LISTEN).await.unwrap();
        let reason = tcp(address, LISTEN).await.unwrap_err();
        assert!(reason.contains("address already in use"), "{reason}");
        let (warnings, start) = (Warnings::default(), Instant::now());
        let is_free_after = async {
            // The attempts are after 1, 3, 7, 15, 31, 63, 123 and 183 seconds.
            time::sleep(Duration::from_secs(124)).await;
            assert!(warnings.is_active(Warning::TcpUnavailable));
            drop(taken);
        };
        let nothing = Snapshots::new(|| std::future::ready(None));
        let served = Served::All(Service::new(Node::default(), nothing));
        let had = Unavailable::new(address, &reason, &served, warnings.clone()).when_available();
        let ((), (_, had)) = tokio::join!(is_free_after, had);
        assert_eq!((had, start.elapsed().as_secs()), (address, 183));
        assert!(!warnings.is_active(Warning::TcpUnavailable));
    }
}
