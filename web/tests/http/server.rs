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
/// Longer than anything takes on a busy machine.
const LONG: Duration = Duration::from_mins(2);
/// Longer than any of these tests waits.
const FOR_EVER: Duration = Duration::from_hours(1);
const SHORT: Duration = Duration::from_millis(200);

struct Server {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
    /// One for each snapshot that a request asked for, from before it is there.
    asked: mpsc::UnboundedReceiver<()>,
}

impl Server {
    async fn start(limits: Limits) -> Self {
        Self::start_answering_after(limits, Duration::ZERO).await
    }

    async fn start_answering_after(limits: Limits, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (ask, asked) = mpsc::unbounded_channel();
        let snapshots = Snapshots::new(move || {
            let _ = ask.send(());
            async move {
                sleep(delay).await;
                Some(Arc::new(counting()))
            }
        });
        let site = Service::new(node(), snapshots).on_tcp(address);
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(serve(listener, site, limits, async { drop(stopped.await) }));
        Self { address, stop, task, asked }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Waits until a request has begun to be answered.
    async fn is_asked(&mut self) {
        timeout(LONG, self.asked.recv()).await.expect("no request came");
    }

    async fn stop(self) {
        drop(self.stop);
        timeout(LONG, self.task).await.expect("the server did not stop").unwrap();
    }
}

fn limits() -> Limits {
    Limits {
        connections: 8,
        reserve_after: FOR_EVER,
        head: FOR_EVER,
        age: FOR_EVER,
        grace: FOR_EVER,
        ..Limits::default()
    }
}

/// Reads one answer; empty if the connection was closed instead.
async fn answer(stream: &mut TcpStream) -> String {
    let mut buffer = vec![0; 4096];
    let length = timeout(LONG, stream.read(&mut buffer)).await.expect("neither answered nor closed");
    String::from_utf8(buffer[..length.unwrap_or(0)].to_vec()).unwrap()
}

#[tokio::test]
async fn a_head_that_does_not_end_is_cut_off() {
    let server = Server::start(Limits { head: SHORT, ..limits() }).await;
    let mut slow = server.connect().await;
    slow.write_all(b"GET /livez HTTP/1.1\r\nHost: local").await.unwrap();
    let cut = answer(&mut slow).await;
    assert!(cut.is_empty() || cut.starts_with("HTTP/1.1 408"), "{cut}");
}

#[tokio::test]
async fn a_connection_serves_many_requests_and_is_closed_when_idle() {
    let server = Server::start(Limits { head: SHORT, ..limits() }).await;
    let mut stream = server.connect().await;
    for _ in 0..3 {
        stream.write_all(REQUEST).await.unwrap();
        assert!(answer(&mut stream).await.starts_with("HTTP/1.1 200 OK"));
    }
    assert_eq!(answer(&mut stream).await, "");
}

#[tokio::test]
async fn who_holds_every_connection_with_half_a_request_keeps_nobody_waiting() {
    let server = Server::start(Limits { reserve_after: FOR_EVER, head: FOR_EVER, ..Limits::default() }).await;
    let mut halves = Vec::new();
    for _ in 0..300 {
        let mut half = server.connect().await;
        // One that was closed to make room is no less held by its client.
        let _ = half.write_all(b"GET /livez HT").await;
        halves.push(half);
    }
    let mut client = server.connect().await;
    client.write_all(REQUEST).await.unwrap();
    assert!(answer(&mut client).await.starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn when_all_connections_are_taken_the_one_that_is_idle_for_longest_makes_room() {
    let server = Server::start(Limits { connections: 2, ..limits() }).await;
    let (mut first, mut second) = (server.connect().await, server.connect().await);
    for stream in [&mut second, &mut first] {
        stream.write_all(REQUEST).await.unwrap();
        assert!(answer(stream).await.starts_with("HTTP/1.1 200 OK"));
    }
    let mut third = server.connect().await;
    third.write_all(REQUEST).await.unwrap();
    assert!(answer(&mut third).await.starts_with("HTTP/1.1 200 OK"));
    assert_eq!(answer(&mut second).await, "");
    first.write_all(REQUEST).await.unwrap();
    assert!(answer(&mut first).await.starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn a_request_that_is_being_answered_is_not_cut_off_for_the_next_client() {
    let mut server = Server::start_answering_after(Limits { connections: 1, ..limits() }, SHORT).await;
    let mut first = server.connect().await;
    first.write_all(REQUEST).await.unwrap();
    server.is_asked().await;
    let mut second = server.connect().await;
    second.write_all(REQUEST).await.unwrap();
    assert!(answer(&mut first).await.starts_with("HTTP/1.1 200 OK"));
    assert!(answer(&mut second).await.starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn more_clients_at_once_than_there_are_connections_are_all_answered() {
    let server = Server::start(limits()).await;
    let mut clients = Vec::new();
    for _ in 0..40 {
        let mut client = server.connect().await;
        client.write_all(REQUEST).await.unwrap();
        clients.push(client);
    }
    for mut client in clients {
        assert!(answer(&mut client).await.starts_with("HTTP/1.1 200 OK"));
    }
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused_before_it_is_all_there() {
    let server = Server::start(limits()).await;
    let mut stream = server.connect().await;
    let endless = format!("GET /livez HTTP/1.1\r\nHost: localhost\r\nCookie: {}", "x".repeat(32 << 10));
    stream.write_all(endless.as_bytes()).await.unwrap();
    assert!(answer(&mut stream).await.starts_with("HTTP/1.1 431 "));
}

#[tokio::test]
async fn an_old_connection_is_closed_though_its_client_goes_on_asking() {
    let server = Server::start(Limits { age: SHORT, ..limits() }).await;
    let mut stream = server.connect().await;
    let asks = async {
        while stream.write_all(REQUEST).await.is_ok() && !answer(&mut stream).await.is_empty() {
            sleep(SHORT / 10).await;
        }
    };
    timeout(LONG, asks).await.expect("still served");
}

#[tokio::test]
async fn a_client_that_never_reads_loses_its_connection() {
    let server = Server::start(Limits { age: SHORT, ..limits() }).await;
    let mut deaf = server.connect().await;
    // Enough requests that their answers fill every buffer on the way.
    let flood = async { while deaf.write_all(&REQUEST.repeat(1000)).await.is_ok() {} };
    timeout(LONG, flood).await.expect("still connected");
    let mut next = server.connect().await;
    next.write_all(REQUEST).await.unwrap();
    assert!(answer(&mut next).await.starts_with("HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn a_stop_waits_for_idle_connections_and_half_requests_no_longer_than_the_grace() {
    let server = Server::start(Limits { grace: SHORT, ..limits() }).await;
    let _silent = server.connect().await;
    let mut half = server.connect().await;
    half.write_all(b"GET / HT").await.unwrap();
    let mut used = server.connect().await;
    used.write_all(REQUEST).await.unwrap();
    assert!(answer(&mut used).await.starts_with("HTTP/1.1 200 OK"));
    server.stop().await;
}

#[tokio::test]
async fn a_stop_lets_a_request_under_way_finish() {
    let mut server = Server::start_answering_after(limits(), SHORT).await;
    let mut stream = server.connect().await;
    stream.write_all(REQUEST).await.unwrap();
    server.is_asked().await;
    let (answer, ()) = tokio::join!(answer(&mut stream), server.stop());
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer:?}");
}

#[tokio::test]
async fn a_client_over_tcp_is_known_by_its_address_in_the_form_of_its_own_family() {
    // Of both families, as "[::]:9477" is, where the node has both.
    let listener = match TcpListener::bind("[::]:0").await {
        Ok(listener) => listener,
        Err(_) => TcpListener::bind("127.0.0.1:0").await.unwrap(),
    };
    let port = listener.local_addr().unwrap().port();
    let client = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let (_stream, peer) = Listen::accept(&listener).await.unwrap();
    assert_eq!(peer, Peer::Remote(client.local_addr().unwrap()));
}
