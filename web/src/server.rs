//! The HTTP/1 server. Its limits keep slow or forgotten clients from holding the service.

use std::{io, time::Duration};

use axum::Router;
use hyper::{
    Request,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixStream},
    sync::watch,
    time,
};

use crate::{
    authority::Peer,
    connections::{Activity, Connections},
    socket::Socket,
};

/// A request's head, which for a browser is below 2 KiB.
const HEAD_MAX_BYTES: usize = 16 << 10;

/// What one client, or many, may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections served at once; beyond that, the one that is idle for longest makes room.
    pub connections: usize,
    /// Time to send a request's head, and so also to stay idle between requests.
    pub head: Duration,
    /// Age at which a connection is closed after its current request.
    pub age: Duration,
    /// Time for requests under way to finish, when a connection is too old or the server stops.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 64,
            head: Duration::from_secs(3),
            age: Duration::from_mins(5),
            grace: Duration::from_secs(2),
        }
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
        let (stream, _) = self.accept().await?;
        // Answers are small and whole: waiting to fill a packet only delays them.
        let _ = stream.set_nodelay(true);
        Ok((stream, Peer::Unknown))
    }
}

impl Listen for Socket {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<(UnixStream, Peer)> {
        self.accept().await
    }
}

/// Serves until `stop` is done, then lets requests under way finish within `limits.grace`.
pub async fn serve(listener: impl Listen, router: Router, limits: Limits, stop: impl Future<Output = ()>) {
    let (stopping, stopped) = watch::channel(());
    let mut connections = Connections::new(limits.connections);
    let mut stop = std::pin::pin!(stop);
    loop {
        let serve_next = async {
            let (stream, peer) = accept(&listener).await;
            let (router, stopped) = (router.clone(), stopped.clone());
            connections.add(|activity| connection(stream, peer, router, limits, activity, stopped)).await;
        };
        tokio::select! {
            () = &mut stop => break,
            () = serve_next => {}
        }
    }
    drop(listener);
    drop(stopping);
    // Each connection keeps its own deadline; none outlives it.
    connections.ended().await;
}

/// The next connection. Errors here are about one client, or pass (no descriptor left), so they never end the service.
async fn accept<L: Listen>(listener: &L) -> (L::Stream, Peer) {
    const PAUSE: Duration = Duration::from_millis(100);
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                time::sleep(PAUSE).await;
            }
        }
    }
}

async fn connection(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: Peer,
    router: Router,
    limits: Limits,
    activity: Activity,
    mut stopped: watch::Receiver<()>,
) {
    let router = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<_>| {
        request.extensions_mut().insert(peer);
        let (answering, answer) = (activity.answering(), router.call(request));
        async move {
            let _answering = answering;
            answer.await
        }
    });
    let mut serving = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head)
            .max_buf_size(HEAD_MAX_BYTES)
            .serve_connection(TokioIo::new(stream), service)
    );
    tokio::select! {
        done = &mut serving => return log(done),
        _ = stopped.changed() => {}
        () = time::sleep(limits.age) => {}
    }
    serving.as_mut().graceful_shutdown();
    if let Ok(done) = time::timeout(limits.grace, serving).await {
        log(done);
    }
}

/// A client that hangs up or sends nonsense is its own business.
fn log(done: hyper::Result<()>) {
    if let Err(error) = done {
        tracing::debug!("a connection ended early: {error}");
    }
}
