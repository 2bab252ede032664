//! The HTTP/1 server. Its limits keep slow, greedy or forgotten clients from holding the service.

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
    connection::{Connection, Endless, Holding, Metered, Patience, PlaceKind, Tracked},
    connection_table::ConnectionTable,
    connections::{Connections, Places},
    reserved_places::OnReservedPlace,
    socket::Socket,
};

/// A request's head, which for a browser is below 2 KiB.
const HEAD_MAX_BYTES: usize = 16 << 10;

/// What the kernel keeps of an answer until its peer takes it, or twice that, as Linux counts: enough for 10 Gbit/s on a local network. On a Unix socket it
/// keeps as much by itself.
const SEND_BUFFER_BYTES: usize = 256 << 10;

/// What one client, or many, may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections served at once; beyond that, the one makes room that is idle for longest, else the one that is answered first.
    pub connections: usize,
    /// Of one peer: a user on the Unix socket, an address on the network. Beyond that, its own make room. All of this machine's clients over TCP are one
    /// peer, which has three quarters of all.
    pub connections_of_peer: usize,
    /// Time for which a client waits for one of these places before it has one of the reserve, which health checks and metrics alone are answered in.
    pub reserve_after: Duration,
    /// Time to send a request's head, and so also to stay idle between requests.
    pub head: Duration,
    /// Time for which a peer may take nothing of what is to be sent.
    pub stall: Duration,
    /// Time to take all of an answer.
    pub answer: Duration,
    /// Age at which a connection is closed after its current request.
    pub age: Duration,
    /// Time for requests under way to finish, when a connection is too old or the server stops.
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
            answer: Duration::from_mins(1),
            age: Duration::from_mins(5),
            grace: Duration::from_secs(2),
        }
    }
}

/// Everything that is served to those who come in one way.
#[derive(Clone, Debug)]
pub struct Site {
    pub(crate) router: Router,
    pub(crate) directory: Arc<ConnectionTable>,
}

impl Site {
    /// To be asked without a server.
    pub fn into_router(self) -> Router {
        self.router
    }
}

/// Where clients come in.
pub trait Listen: Send + Sync {
    /// What one of them is connected by.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next one, and who it is.
    fn accept(&self) -> impl Future<Output = io::Result<(Self::Stream, Peer)>> + Send;
}

impl Listen for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<(TcpStream, Peer)> {
        let (stream, address) = self.accept().await?;
        // Responses are whole: waiting to fill a packet only delays them.
        let _ = stream.set_nodelay(true);
        // Else the kernel takes megabytes of an answer that nobody reads, where no budget of ours counts them.
        let _ = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER_BYTES);
        // One client has one address, also where it comes to a socket of both families.
        Ok((stream, Peer::Remote(SocketAddr::new(address.ip().to_canonical(), address.port()))))
    }
}

impl Listen for Socket {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, Peer)> {
        self.accept().await
    }
}

/// Serves until `stop` is done, then lets requests under way finish within `limits.grace`.
pub async fn serve(listener: impl Listen, site: Site, limits: Limits, stop: impl Future<Output = ()>) {
    let (stopping, stopped) = watch::channel(());
    let places =
        Places { all: limits.connections, of_peer: limits.connections_of_peer, reserve_after: limits.reserve_after };
    let mut connections = Connections::new(places, Arc::clone(&site.directory));
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
        connections.settle(serve).await;
    }
    drop(listener);
    drop(stopping);
    // Each connection keeps its own deadline; none outlives it.
    connections.ended().await;
}

/// What comes of connections that cannot be accepted. Errors are about one client, or pass (no descriptor left), so they never end the service.
#[derive(Default)]
struct AcceptFailures {
    pause_until: Option<Instant>,
    /// When the last line was logged, and how many failures had none since.
    logged: Option<Instant>,
    not_logged: u64,
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
            self.not_logged += 1;
            return;
        }
        tracing::warn!("cannot accept a connection, nor {} before: {error}", std::mem::take(&mut self.not_logged));
        self.logged = Some(now);
    }

    /// Waits until it makes sense to accept again; for ever where it does already.
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
    Site { router, directory }: Site,
    limits: Limits,
    mut stopped: watch::Receiver<()>,
) {
    let router = TowerToHyperService::new(router);
    let asked = Arc::clone(&connection);
    let service = service_fn(move |mut request: Request<_>| {
        request.extensions_mut().insert(peer);
        if asked.place() == PlaceKind::Reserve {
            request.extensions_mut().insert(OnReservedPlace);
        }
        let (connection, answering) = (Arc::clone(&asked), asked.answering());
        let answer = router.call(request);
        async move {
            let mut answer = answer.await?;
            if connection.leaves_behind_answer() {
                answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            // From here on it is the peer's business how fast it goes.
            let holding = answer.extensions().get::<Holding>().copied();
            let sending = answer.extensions().get::<Endless>().is_none().then(|| connection.sending(holding));
            drop(answering);
            Ok::<_, std::convert::Infallible>(answer.map(|body: Body| Tracked::new(body, sending)))
        }
    });
    let mut serving = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head)
            .max_buf_size(HEAD_MAX_BYTES)
            .serve_connection(TokioIo::new(Metered::new(stream, Arc::clone(&connection))), service)
    );
    let patience = Patience { stall: limits.stall, answer: limits.answer };
    let mut to_be_closed = std::pin::pin!(connection.to_be_closed(patience));
    let mut is_old = false;
    tokio::select! {
        done = &mut serving => {
            if connection.made_room() {
                directory.count(Closed::Displaced);
            }
            return over(&directory, done);
        }
        why = &mut to_be_closed => return directory.count(why),
        _ = stopped.changed() => {}
        () = time::sleep(limits.age) => is_old = true,
    }
    serving.as_mut().graceful_shutdown();
    tokio::select! {
        done = serving => over(&directory, done),
        why = to_be_closed => directory.count(why),
        () = time::sleep(limits.grace) => if is_old { directory.count(Closed::Expired) },
    }
}

/// A client that hangs up or sends nonsense is its own business.
fn over(directory: &ConnectionTable, done: hyper::Result<()>) {
    if let Err(error) = done {
        if error.is_timeout() {
            directory.count(Closed::HeadTimeout);
        }
        tracing::debug!("a connection ended early: {error}");
    }
}
