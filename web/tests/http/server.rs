//! The server's limits, over real sockets.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{sleep, timeout},
};
use web::{
    Peer, Service, Snapshots,
    server::{Limits, Listen, serve},
};

use crate::support::{counting, node};

const REQUEST: &[u8] = b"GET /api/v1/processes HTTP/1.1\r\nHost: localhost\r\n\r\n";
/// Time limit beyond which an operation hangs.
const HANG_LIMIT: Duration = Duration::from_mins(2);
/// Longer than any of these tests.
const UNLIMITED: Duration = Duration::from_hours(1);
const SHORT: Duration = Duration::from_millis(200);

struct Server {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    /// A message for each snapshot that a request needs, sent before it is taken.
    requested: mpsc::UnboundedReceiver<()>,
}

impl Server {
    async fn start(limits: Limits) -> Self {
        Self::start_with_delay(limits, Duration::ZERO).await
    }

    async fn start_with_delay(limits: Limits, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requested) = mpsc::unbounded_channel();
        let snapshots = Snapshots::new(move || {
            let _ = sender.send(());
            async move {
                sleep(delay).await;
                Some(Arc::new(counting()))
            }
        });
        let site = Service::new(node(), snapshots).on_tcp(address);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(serve(listener, site, limits, async { drop(stopped.await) }));
        Self { address, stop, task, requested }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Waits until a request is being handled.
    async fn is_requested(&mut self) {
        timeout(HANG_LIMIT, self.requested.recv()).await.expect("no request came");
    }

    async fn stop(self) {
        drop(self.stop);
        timeout(HANG_LIMIT, self.task).await.expect("the server did not stop").unwrap();
    }
}

fn limits() -> Limits {
    Limits {
        connections: 8,
        reserve_after: UNLIMITED,
        head: UNLIMITED,
        age: UNLIMITED,
        grace: UNLIMITED,
        ..Limits::default()
    }
}

/// Reads one response; empty if the connection was closed instead.
async fn response(stream: &mut TcpStream) -> String {
    let mut buffer = vec![0; 4096];
    let length = timeout(HANG_LIMIT, stream.read(&mut buffer)).await.expect("neither a response nor closed");
    String::from_utf8(buffer[..length.unwrap_or(0)].to_vec()).unwrap()
}

#[tokio::test]
async fn an_endless_head_times_out() {
    let server = Server::start(Limits { head: SHORT, ..limits() }).await;
    let mut slow = server.connect().await;
    slow.write_all(b"GET /livez HTTP/1.1\r\nHost: local").await.unwrap();
    let cut = response(&mut slow).await;
    assert!(cut.is_empty() || cut.starts_with("HTTP/1.1 408"), "{cut}");
}

#[tokio::test]
async fn a_connection_serves_many_requests_and_is_closed_when_idle() {
    let server = Server::start(Limits { head: SHORT, ..limits() }).await;
    let mut stream = server.connect().await;
    for _ in 0..3 {
        stream.write_all(REQUEST).await.unwrap();
        assert!(response(&mut stream).await.starts_with("HTTP/1.1 200 OK"));
    }
    assert_eq!(response(&mut stream).await, "");
}

#[tokio::test]
async fn partial_requests_on_all_connections_do_not_block_others() {
    let server = Server::start(Limits { reserve_after: UNLIMITED, head: UNLIMITED, ..Limits::default() }).await;
    let mut halves = Vec::new();
    for _ in 0..300 {
        let mut half = server.connect().await;
        // The connection may have been displaced.
        let _ = half.write_all(b"GET /livez HT").await;
        halves.push(half);
    }
    let mut client = server.connect().await;
    client.write_all(REQUEST).await.unwrap();
    assert!(response(&mut client).await.starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn without_a_free_place_the_longest_idle_connection_is_displaced() {
    let server = Server::start(Limits { connections: 2, ..limits() }).await;
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    for stream in [&mut second, &mut first] {
        stream.write_all(REQUEST).await.unwrap();
        assert!(response(stream).await.starts_with("HTTP/1.1 200 OK"));
    }
    let mut third = server.connect().await;
    third.write_all(REQUEST).await.unwrap();
    assert!(response(&mut third).await.starts_with("HTTP/1.1 200 OK"));
    assert_eq!(response(&mut second).await, "");
    first.write_all(REQUEST).await.unwrap();
    assert!(response(&mut first).await.starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn a_request_in_progress_is_not_displaced() {
    let mut server = Server::start_with_delay(Limits { connections: 1, ..limits() }, SHORT).await;
    let mut first = server.connect().await;
    first.write_all(REQUEST).await.unwrap();
    server.is_requested().await;
    let mut second = server.connect().await;
    second.write_all(REQUEST).await.unwrap();
    assert!(response(&mut first).await.starts_with("HTTP/1.1 200 OK"));
    assert!(response(&mut second).await.starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn more_clients_than_connections_all_get_a_response() {
    let server = Server::start(limits()).await;
    let mut clients = Vec::new();
    for _ in 0..40 {
        let mut client = server.connect().await;
        client.write_all(REQUEST).await.unwrap();
        clients.push(client);
    }
    for mut client in clients {
        assert!(response(&mut client).await.starts_with("HTTP/1.1 200 OK"));
    }
}

#[tokio::test]
async fn a_too_long_head_is_rejected_before_its_end() {
    let server = Server::start(limits()).await;
    let mut stream = server.connect().await;
    let endless = format!("GET /livez HTTP/1.1\r\nHost: localhost\r\nCookie: {}", "x".repeat(32 << 10));
    stream.write_all(endless.as_bytes()).await.unwrap();
    assert!(response(&mut stream).await.starts_with("HTTP/1.1 431 "));
}

#[tokio::test]
async fn an_old_connection_is_closed_despite_further_requests() {
    let server = Server::start(Limits { age: SHORT, ..limits() }).await;
    let mut stream = server.connect().await;
    let requests = async {
        while stream.write_all(REQUEST).await.is_ok() && !response(&mut stream).await.is_empty() {
            sleep(SHORT / 10).await;
        }
    };
    timeout(HANG_LIMIT, requests).await.expect("still served");
}

#[tokio::test]
async fn a_client_that_never_reads_loses_its_connection() {
    let server = Server::start(Limits { age: SHORT, ..limits() }).await;
    let mut stalled = server.connect().await;
    // Enough requests that their responses fill every buffer on the way.
    let flood = async { while stalled.write_all(&REQUEST.repeat(1000)).await.is_ok() {} };
    timeout(HANG_LIMIT, flood).await.expect("still connected");
    let mut next = server.connect().await;
    next.write_all(REQUEST).await.unwrap();
    assert!(response(&mut next).await.starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn a_stop_waits_for_idle_connections_and_partial_requests_for_the_grace_period() {
    let server = Server::start(Limits { grace: SHORT, ..limits() }).await;
    let _silent = server.connect().await;
    let mut half = server.connect().await;
    half.write_all(b"GET / HT").await.unwrap();
    let mut used = server.connect().await;
    used.write_all(REQUEST).await.unwrap();
    assert!(response(&mut used).await.starts_with("HTTP/1.1 200 OK"));
    server.stop().await;
}

#[tokio::test]
async fn a_stop_waits_for_a_request_in_progress() {
    let mut server = Server::start_with_delay(limits(), SHORT).await;
    let mut stream = server.connect().await;
    stream.write_all(REQUEST).await.unwrap();
    server.is_requested().await;
    let (response, ()) = tokio::join!(response(&mut stream), server.stop());
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response:?}");
}

#[tokio::test]
async fn a_tcp_client_has_its_address_in_its_own_family() {
    // A listener of both families, like "[::]:9477", if the node has both.
    let listener = match TcpListener::bind("[::]:0").await {
        Ok(listener) => listener,
        Err(_) => TcpListener::bind("127.0.0.1:0").await.unwrap(),
    };
    let port = listener.local_addr().unwrap().port();
    let client = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let (_stream, peer) = Listen::accept(&listener).await.unwrap();
    assert_eq!(peer, Peer::Remote(client.local_addr().unwrap()));
}
