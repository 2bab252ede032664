//! The HTTP/1 server. Its limits keep slow or forgotten clients from holding the service.

use std::{io, sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time,
};

/// What one client, or many, may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections served at once; others wait in the listener's queue.
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
            head: Duration::from_secs(10),
            age: Duration::from_mins(5),
            grace: Duration::from_secs(2),
        }
    }
}

/// Serves until `stop` is done, then lets requests under way finish within `limits.grace`.
pub async fn serve(listener: TcpListener, router: Router, limits: Limits, stop: impl Future<Output = ()>) {
    let (stopping, stopped) = watch::channel(());
    let slots = Arc::new(Semaphore::new(limits.connections));
    let mut connections = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let accept = async {
            let slot = Arc::clone(&slots).acquire_owned().await;
            (slot, accept(&listener).await)
        };
        tokio::select! {
            () = &mut stop => break,
            (slot, stream) = accept => {
                let connection = connection(stream, router.clone(), limits, stopped.clone());
                connections.spawn(async move {
                    connection.await;
                    drop(slot);
                });
            }
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    drop(stopping);
    // Each connection keeps its own deadline; none outlives it.
    while connections.join_next().await.is_some() {}
}

/// The next connection. Errors here are about one client, or pass (no descriptor left), so they never end the service.
async fn accept(listener: &TcpListener) -> TcpStream {
    const PAUSE: Duration = Duration::from_millis(100);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                time::sleep(PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, router: Router, limits: Limits, mut stopped: watch::Receiver<()>) {
    // Answers are small and whole: waiting to fill a packet only delays them.
    let _ = stream.set_nodelay(true);
    let mut serving = std::pin::pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.head)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
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
