//! Server on streams in memory, with peers and a clock that the test controls.

use std::{collections::BTreeMap, io, net::SocketAddr, time::Duration};

use axum::Router;
use model::Snapshot;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    sync::{mpsc, oneshot},
    time::timeout,
};
use web::{
    Peer, Service, Sources,
    server::{Limits, Listen, serve},
};

use crate::support::{counting, metrics, node, process};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// Capacity of a stream: as little as that of a socket may be.
pub(crate) const BUFFER: usize = 4096;

/// A node whose list of processes has pages of 2 MiB.
pub(crate) fn large() -> Snapshot {
    let name = "x".repeat(100 << 10);
    let processes = (1..30).map(|pid| process(pid, &name, None, BTreeMap::new())).collect();
    Snapshot { processes, ..counting() }
}

/// Listener for streams of a test.
struct Streams(tokio::sync::Mutex<mpsc::Receiver<(DuplexStream, Peer)>>);

impl Listen for Streams {
    type Stream = DuplexStream;

    async fn accept(&self) -> io::Result<(DuplexStream, Peer)> {
        match self.0.lock().await.recv().await {
            Some(accepted) => Ok(accepted),
            None => std::future::pending().await,
        }
    }
}

pub(crate) struct Server {
    pub(crate) streams: mpsc::Sender<(DuplexStream, Peer)>,
    /// Router for requests without a connection.
    pub(crate) router: Router,
    _stop: oneshot::Sender<()>,
}

/// Client's end of a connection.
pub(crate) struct Client(pub(crate) DuplexStream);

pub(crate) fn remote(last: u8) -> Peer {
    Peer::Remote(SocketAddr::from(([10, 0, 0, last], 40_000)))
}

pub(crate) const fn local(uid: u32) -> Peer {
    Peer::Local { uid, pid: None, grant: None }
}

impl Server {
    pub(crate) fn start(sources: impl Into<Sources>) -> Self {
        Self::with(Limits { head: Duration::from_hours(1), age: Duration::from_hours(1), ..Limits::default() }, sources)
    }

    pub(crate) fn with(limits: Limits, sources: impl Into<Sources>) -> Self {
        let service = Service::new(node(), sources);
        let (streams, clients) = mpsc::channel(1);
        let (stop, stopped) = oneshot::channel();
        let site = service.on_tcp("127.0.0.1:9477".parse().unwrap());
        let router = service.on_tcp("127.0.0.1:9477".parse().unwrap()).into_router();
        tokio::spawn(serve(Streams(tokio::sync::Mutex::new(clients)), site, limits, async { drop(stopped.await) }));
        Self { streams, router, _stop: stop }
    }

    pub(crate) async fn connect(&self, peer: Peer) -> Client {
        let (client, server) = duplex(BUFFER);
        self.streams.send((server, peer)).await.unwrap();
        Client(client)
    }

    /// Connects and requests a path, without reading the response.
    pub(crate) async fn request(&self, peer: Peer, path: &str) -> Client {
        let mut client = self.connect(peer).await;
        client.request(path).await;
        client
    }

    /// Number of connections closed for this reason.
    pub(crate) async fn closed(&self, reason: &str) -> u64 {
        self.metric(&format!("uvmd_http_connections_closed_total{{reason=\"{reason}\"}}")).await
    }

    pub(crate) async fn metric(&self, series: &str) -> u64 {
        let text = metrics(&self.router).await;
        let line = text.lines().find(|line| line.starts_with(series)).unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }
}

impl Client {
    pub(crate) async fn request(&mut self, path: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        // The connection may have been displaced.
        let _ = self.0.write_all(request.as_bytes()).await;
    }

    /// Status of the next response; `None` if the connection is closed instead.
    pub(crate) async fn status(&mut self) -> Option<String> {
        let mut bytes = vec![0; BUFFER];
        let length =
            timeout(Duration::from_hours(1), self.0.read(&mut bytes)).await.expect("neither a response nor closed");
        let text = String::from_utf8_lossy(&bytes[..length.unwrap_or(0)]).into_owned();
        text.split(' ').nth(1).map(str::to_owned)
    }

    /// Whether the connection is closed.
    pub(crate) async fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        matches!(timeout(Duration::ZERO, self.0.read(&mut byte)).await, Ok(Ok(0) | Err(_)))
    }
}

pub(crate) async fn count_closed(clients: &mut [Client]) -> usize {
    let mut closed = 0;
    for client in clients {
        closed += usize::from(client.is_closed().await);
    }
    closed
}
