//! HTTP/1 server. Its limits keep slow, greedy or idle clients from occupying the service.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{HeaderValue, header},
};
use hyper::{
    Request,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixStream},
    sync::watch,
    time::{self, Instant},
};

use crate::{
    auth::Peer,
    closed::Closed,
    connection::{Connection, Endless, Holding, Metered, PlaceKind, SendTimeouts, Tracked},
    connection_table::ConnectionTable,
    connections::{Connections, Places},
    protection::{Protection, Tls},
    reserved_places::OnReservedPlace,
    socket::Socket,
    transport::Transport,
};

/// Maximum of a request's head; that of a browser is below 2 KiB.
const HEAD_MAX_BYTES: usize = 16 << 10;

/// Send buffer of the kernel for a TCP connection; Linux reserves twice that. It is enough for 10
/// Gbit/s on a local network. A Unix socket has about as much by default.
const SEND_BUFFER_BYTES: usize = 256 << 10;

/// Limits of one client and of all clients.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections served at once. Beyond that, the one that has been idle longest is closed, else
    /// the first one that gets a response.
    pub connections: usize,
    /// Connections of one peer: a user on the Unix socket, or an address on the network. Beyond
    /// that, its own connections are closed. All TCP clients on this machine are one peer, with
    /// three quarters of all connections.
    pub connections_of_peer: usize,
    /// Waiting time of a client after which it has a place of the reserve, for health checks and
    /// metrics.
    pub reserve_after: Duration,
    /// Time for the handshake of TLS, and for the head of a request, and thus for idling between
    /// requests.
    pub head: Duration,
    /// Time for which a peer may accept no byte of a response.
    pub stall: Duration,
    /// Time for receiving a response as a whole.
    pub response: Duration,
    /// Age at which a connection is closed after its current request.
    pub age: Duration,
    /// Time for current requests to end, when a connection is too old or the server stops.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            connections_of_peer: 16,
            reserve_after: Duration::from_millis(250),
            head: Duration::from_secs(3),
            stall: Duration::from_secs(10),
            response: Duration::from_mins(1),
            age: Duration::from_mins(5),
            grace: Duration::from_secs(2),
        }
    }
}

/// Endpoints of one listener.
#[derive(Clone, Debug)]
pub struct Site {
    pub(crate) router: Router,
    pub(crate) table: Arc<ConnectionTable>,
    /// Protection of the listener, if it may have one.
    pub(crate) protection: Option<Protection>,
}

impl Site {
    /// Router for calls without a server.
    pub fn into_router(self) -> Router {
        self.router
    }
}

/// Listener for clients.
pub trait Listen: Send + Sync {
    /// Stream of a connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// Accepts the next connection, with its peer.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, Peer)>> + Send;
}

impl Listen for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, Peer)> {
        let (stream, address) = self.accept().await?;
        // A response is written as a whole: waiting to fill a packet only delays it.
        let _ = stream.set_nodelay(true);
        // Without a limit, the kernel buffers megabytes of an unread response, which no budget
        // counts.
        let _ = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER_BYTES);
        // A client has one address, also on a socket of both address families.
        Ok((stream, Peer::Remote(SocketAddr::new(address.ip().to_canonical(), address.port()))))
    }
}

impl Listen for Socket {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, Peer)> {
        self.accept().await
    }
}

/// Serves until `stop` is done, then lets current requests end within `limits.grace`.
pub async fn serve(listener: impl Listen, site: Site, limits: Limits, stop: impl Future<Output = ()>) {
    let (stopping, stopped) = watch::channel(());
    let places =
        Places { all: limits.connections, of_peer: limits.connections_of_peer, reserve_after: limits.reserve_after };
    let mut connections = Connections::new(places, Arc::clone(&site.table));
    let mut stop = std::pin::pin!(stop);
    let mut failures = AcceptFailures::default();
    loop {
        tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept(), if failures.pause_until.is_none() => match accepted {
                Ok((stream, peer)) => connections.arrive(stream, peer),
                Err(error) => failures.add(&error),
            },
            () = failures.pause() => {}
            () = connections.changed() => {}
        }
        let serve =
            |stream, peer, connection| serve_one(stream, peer, connection, site.clone(), limits, stopped.clone());
        connections.assign_places(serve).await;
    }
    drop(listener);
    drop(stopping);
    // Each connection has a deadline, and exits by then.
    connections.ended().await;
}

/// Handling of errors of `accept`. They concern one client, or are transient (no free descriptor),
/// so they never end the service.
#[derive(Default)]
struct AcceptFailures {
    pause_until: Option<Instant>,
    /// Time of the last log line, and the number of failures since.
    logged: Option<Instant>,
    unlogged: u64,
}

impl AcceptFailures {
    const PAUSE: Duration = Duration::from_millis(100);
    const LOG_EVERY: Duration = Duration::from_secs(10);

    fn add(&mut self, error: &io::Error) {
        if error.kind() == io::ErrorKind::ConnectionAborted {
            return;
        }
        let now = Instant::now();
        self.pause_until = Some(now + Self::PAUSE);
        if self.logged.is_some_and(|logged| now < logged + Self::LOG_EVERY) {
            self.unlogged += 1;
            return;
        }
        tracing::warn!(
            "cannot accept a connection, after {} unlogged failures: {error}",
            std::mem::take(&mut self.unlogged)
        );
        self.logged = Some(now);
    }

    /// Waits for the end of the pause; forever without one.
    async fn pause(&mut self) {
        match self.pause_until {
            Some(until) => time::sleep_until(until).await,
            None => std::future::pending().await,
        }
        self.pause_until = None;
    }
}

async fn serve_one(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    connection: Arc<Connection>,
    Site { router, table, protection }: Site,
    limits: Limits,
    mut stopped: watch::Receiver<()>,
) {
    let router = TowerToHyperService::new(router);
    let handled = Arc::clone(&connection);
    let service = service_fn(move |mut request: Request<_>| {
        request.extensions_mut().insert(peer);
        if handled.place() == PlaceKind::Reserve {
            request.extensions_mut().insert(OnReservedPlace);
        }
        let (connection, handling) = (Arc::clone(&handled), handled.handling());
        let response = router.call(request);
        async move {
            let mut response = response.await?;
            if connection.closes_after_response() {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            // From here on, the speed depends on the peer.
            let holding = response.extensions().get::<Holding>().copied();
            let sending = response.extensions().get::<Endless>().is_none().then(|| connection.sending(holding));
            drop(handling);
            Ok::<_, std::convert::Infallible>(response.map(|body: Body| Tracked::new(body, sending)))
        }
    });
    let timeouts = SendTimeouts { stall: limits.stall, response: limits.response };
    let mut close_reason = std::pin::pin!(connection.close_reason(timeouts));
    let metered = Metered::new(stream, Arc::clone(&connection));
    let transport = match protection.and_then(|protection| protection.tls()) {
        None => Transport::Clear(metered),
        Some(tls) => tokio::select! {
            shaken = shake_hands(metered, &tls, &connection, limits.head) => match shaken {
                Ok(transport) => transport,
                Err(None) => return,
                Err(Some(reason)) => return table.count(reason),
            },
            reason = &mut close_reason => return table.count(reason),
            _ = stopped.changed() => return,
        },
    };
    let mut serving = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head)
            .max_buf_size(HEAD_MAX_BYTES)
            .serve_connection(TokioIo::new(transport), service)
    );
    let mut is_old = false;
    tokio::select! {
        done = &mut serving => {
            if connection.gave_up_place() {
                table.count(Closed::Displaced);
            }
            return record_end(&table, done);
        }
        reason = &mut close_reason => return table.count(reason),
        _ = stopped.changed() => {}
        () = time::sleep(limits.age) => is_old = true,
    }
    serving.as_mut().graceful_shutdown();
    tokio::select! {
        done = serving => record_end(&table, done),
        reason = close_reason => table.count(reason),
        () = time::sleep(limits.grace) => if is_old { table.count(Closed::Expired) },
    }
}

/// Handshake of TLS within a time limit.
///
/// # Errors
/// Reason for closing the connection, if it was not its peer that ended the handshake.
async fn shake_hands<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    tls: &Tls,
    connection: &Arc<Connection>,
    limit: Duration,
) -> Result<Transport<S>, Option<Closed>> {
    // It takes several round trips, so it is not displaced sooner than a response.
    let _sending = connection.sending(None);
    match time::timeout(limit, Transport::accept(stream, tls)).await {
        Ok(Ok(transport)) => Ok(transport),
        Ok(Err(error)) => {
            tracing::debug!("a handshake of TLS failed: {error}");
            Err(None)
        }
        Err(_) => Err(Some(Closed::HandshakeTimeout)),
    }
}

/// Records the end of a connection. A client that disconnects or violates the protocol is no error.
fn record_end(table: &ConnectionTable, done: hyper::Result<()>) {
    if let Err(error) = done {
        if error.is_timeout() {
            table.count(Closed::HeadTimeout);
        }
        tracing::debug!("a connection ended early: {error}");
    }
}
