//! A server on streams in memory, which a test opens and whose peers it makes up, with the clock of the test.

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

/// What a stream holds between the two: as little as a socket may.
pub(crate) const BUFFER: usize = 4096;

/// A node whose processes take pages of 2 MiB to list.
pub(crate) fn large() -> Snapshot {
    let name = "x".repeat(100 << 10);
    let processes = (1..30).map(|pid| process(pid, &name, None, BTreeMap::new())).collect();
    Snapshot { processes, ..counting() }
}

/// Where clients come in.
struct Door(tokio::sync::Mutex<mpsc::Receiver<(DuplexStream, Peer)>>);

impl Listen for Door {
    type Stream = DuplexStream;

    async fn accept(&self) -> io::Result<(DuplexStream, Peer)> {
        match self.0.lock().await.recv().await {
            Some(accepted) => Ok(accepted),
            None => std::future::pending().await,
        }
    }
}

pub(crate) struct Server {
    pub(crate) door: mpsc::Sender<(DuplexStream, Peer)>,
    /// To ask without a connection.
    pub(crate) router: Router,
    _stop: oneshot::Sender<()>,
}

/// One connection, as its client has it.
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
        let (door, clients) = mpsc::channel(1);
        let (stop, stopped) = oneshot::channel();
        let site = service.on_tcp("127.0.0.1:9477".parse().unwrap());
        let router = service.on_tcp("127.0.0.1:9477".parse().unwrap()).into_router();
        tokio::spawn(serve(Door(tokio::sync::Mutex::new(clients)), site, limits, async { drop(stopped.await) }));
        Self { door, router, _stop: stop }
    }

    pub(crate) async fn connect(&self, peer: Peer) -> Client {
        let (client, server) = duplex(BUFFER);
        self.door.send((server, peer)).await.unwrap();
        Client(client)
    }

    /// Asks for this, and takes nothing.
    pub(crate) async fn ask(&self, peer: Peer, path: &str) -> Client {
        let mut client = self.connect(peer).await;
        client.ask(path).await;
        client
    }

    /// How many connections were closed for this reason.
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
    pub(crate) async fn ask(&mut self, path: &str) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        // One that was closed to make room is no less held by its client.
        let _ = self.0.write_all(request.as_bytes()).await;
    }

    /// The status of the next answer; `None` if the connection is closed instead.
    pub(crate) async fn status(&mut self) -> Option<String> {
        let mut bytes = vec![0; BUFFER];
        let length =
            timeout(Duration::from_hours(1), self.0.read(&mut bytes)).await.expect("neither answered nor closed");
        let text = String::from_utf8_lossy(&bytes[..length.unwrap_or(0)]).into_owned();
        text.split(' ').nth(1).map(str::to_owned)
    }

    /// Whether it is closed by now.
    pub(crate) async fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        matches!(timeout(Duration::ZERO, self.0.read(&mut byte)).await, Ok(Ok(0) | Err(_)))
    }
}

pub(crate) async fn how_many_are_closed(clients: &mut [Client]) -> usize {
    let mut closed = 0;
    for client in clients {
        closed += usize::from(client.is_closed().await);
    }
    closed
}
