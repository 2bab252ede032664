//! Overload by clients that keep requesting: `/livez` and `/metrics` respond within a second to
//! others.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use model::History;
use tokio::{
    io::{AsyncReadExt, DuplexStream},
    sync::mpsc,
    task::JoinSet,
    time::{Instant, sleep, timeout},
};
use web::{
    Peer, Service, Snapshots, Source, Sources,
    server::{Limits, Listen, serve},
};

use crate::{
    memory_server::{BUFFER, SECOND, Server, count_closed, large, local, remote},
    support::{always, at, busy, counting, node},
};

/// A collector that takes a while for each request, so that the clock of the test advances.
fn busy_collector() -> Sources {
    const DELAY: Duration = Duration::from_millis(20);
    let history = Source::new(|_| async {
        sleep(DELAY).await;
        Some(Some(History { begin: at(0), interval: SECOND, samples: Vec::new() }))
    });
    let snapshots = Snapshots::new(|| async {
        sleep(DELAY).await;
        Some(Arc::new(busy()))
    });
    Sources { history, ..snapshots.into() }
}

/// A collector that never responds to requests for the history.
fn stalled_collector() -> Sources {
    Sources { history: Source::new(|_| std::future::pending()), ..always(busy()).into() }
}

/// Clients that request again after each response, and reconnect when they are closed.
fn loops(server: &Server, peers: impl IntoIterator<Item = (Peer, usize)>, path: fn(usize) -> String) -> JoinSet<()> {
    let mut loops = JoinSet::new();
    for (peer, count) in peers {
        for at in 0..count {
            let streams = server.streams.clone();
            loops.spawn(async move {
                for round in at * 1000.. {
                    let (client, server) = tokio::io::duplex(BUFFER);
                    streams.send((server, peer)).await.unwrap();
                    let mut client = crate::memory_server::Client(client);
                    client.request(&path(round)).await;
                    while client.status().await.is_some() {
                        client.request(&path(round)).await;
                    }
                }
            });
        }
    }
    loops
}

fn history(at: usize) -> String {
    format!("/api/v1/processes/20/history?seconds={}", at % 600 + 1)
}

fn page(at: usize) -> String {
    format!("/api/v1/processes?limit={}", at % 1000 + 1)
}

/// Checks that these paths respond within a time, whatever others do.
async fn assert_responds(server: &Server, peer: Peer, paths: &[&str], within: Duration) {
    for path in paths {
        let begun = Instant::now();
        let mut client = server.connect(peer).await;
        client.request(path).await;
        let status = timeout(30 * SECOND, client.status()).await;
        assert_eq!(status, Ok(Some("200".to_owned())), "{path} for {peer:?}");
        assert!(begun.elapsed() <= within, "{path} for {peer:?} after {:?}", begun.elapsed());
    }
}

const SHORT: [&str; 3] = ["/livez", "/readyz", "/metrics"];

#[tokio::test(start_paused = true)]
async fn repeated_requests_do_not_delay_health_checks() {
    for path in [history, page] {
        let server = Server::start(busy_collector());
        let _loops = loops(&server, (1..=4).map(|peer| (remote(peer), 16)), path);
        sleep(2 * SECOND).await;
        for peer in [remote(1), remote(200)] {
            assert_responds(&server, peer, &SHORT, SECOND).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn clients_that_repeat_requests_are_displaced_after_a_response() {
    let server = Server::start(busy_collector());
    let _loops = loops(&server, (1..=4).map(|peer| (remote(peer), 16)), history);
    sleep(2 * SECOND).await;
    for _ in 0..5 {
        assert_responds(&server, remote(200), &["/api/v1/gpus"], 2 * SECOND).await;
    }
    assert!(server.closed("displaced").await > 0);
}

#[tokio::test(start_paused = true)]
async fn more_clients_of_an_address_than_places_do_not_delay_health_checks() {
    let server = Server::start(busy_collector());
    let _loops = loops(&server, [(remote(1), 70)], history);
    sleep(2 * SECOND).await;
    assert_responds(&server, remote(1), &SHORT, SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn scrapers_and_readers_that_read_nothing_do_not_delay_health_checks() {
    let server = Server::start(always(large()));
    let mut stalled = Vec::new();
    for round in 0..10 {
        for peer in 1..=8 {
            stalled.push(server.request(remote(peer), "/metrics").await);
            stalled.push(server.request(remote(peer), &page(round * 10 + usize::from(peer))).await);
        }
        assert_responds(&server, remote(1), &SHORT, SECOND).await;
        assert_responds(&server, remote(200), &SHORT, SECOND).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_on_a_reserved_place_is_rejected_unless_it_is_short() {
    let server = Server::start(stalled_collector());
    let mut stalled = Vec::new();
    for peer in 1..=4 {
        for at in 0..16 {
            stalled.push(server.request(remote(peer), &history(usize::from(peer) * 16 + at)).await);
        }
    }
    assert_responds(&server, remote(200), &SHORT, SECOND).await;
    let mut other = server.request(remote(200), "/api/v1/gpus").await;
    let mut response = vec![0; BUFFER];
    let length = other.0.read(&mut response).await.unwrap();
    let response = String::from_utf8_lossy(&response[..length]).to_lowercase();
    assert!(response.starts_with("http/1.1 503") && response.contains("retry-after: 1\r\n"), "{response}");
    assert!(response.contains("connection: close\r\n"), "{response}");
    assert_eq!(server.metric("uvmd_http_requests_rejected_total{reason=\"connections\"}").await, 1);
}

#[tokio::test(start_paused = true)]
async fn idle_connections_do_not_hold_the_reserve() {
    let server = Server::start(stalled_collector());
    let mut held = Vec::new();
    for peer in 1..=4 {
        for at in 0..16 {
            held.push(server.request(remote(peer), &history(usize::from(peer) * 16 + at)).await);
        }
        for _ in 0..60 {
            held.push(server.connect(remote(peer)).await);
        }
    }
    assert_responds(&server, remote(200), &SHORT, SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn all_local_clients_over_tcp_are_one_peer() {
    let server = Server::start(stalled_collector());
    let mut stalled = Vec::new();
    for at in 0..100 {
        let address = [format!("127.0.{at}.1:40000"), format!("[::1]:{}", 40_000 + at)][at % 2].parse().unwrap();
        stalled.push(server.request(Peer::Remote(address), &history(at)).await);
    }
    sleep(SECOND / 10).await;
    let mut other = server.request(remote(1), "/livez").await;
    assert_eq!(timeout(SECOND / 100, other.status()).await, Ok(Some("200".to_owned())), "a regular place is free");
    assert_eq!(server.metric("uvmd_http_connections").await, 48 + 1);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_rejects_a_newcomer_whose_peer_has_no_fewer_connections() {
    let server = Server::start(stalled_collector());
    let mut stalled = Vec::new();
    for peer in 1..=4 {
        for at in 0..16 {
            stalled.push(server.request(remote(peer), &history(usize::from(peer) * 16 + at)).await);
        }
    }
    let other = |at: u8, network| Peer::Remote(SocketAddr::from(([10, 1, network, at], 40_000)));
    let mut waiting = Vec::new();
    for at in 0..=255 {
        waiting.push(server.connect(other(at, 1)).await);
    }
    let mut late = Vec::new();
    for at in 0..5 {
        late.push(server.connect(other(at, 2)).await);
    }
    sleep(SECOND / 100).await;
    assert_eq!((count_closed(&mut waiting).await, count_closed(&mut late).await), (0, 5));
}

/// Listener that fails after a number of clients, as without a free descriptor.
struct Failing {
    clients: tokio::sync::Mutex<mpsc::Receiver<(DuplexStream, Peer)>>,
    failures: Arc<AtomicUsize>,
    after: usize,
    accepted: AtomicUsize,
}

impl Listen for Failing {
    type Stream = DuplexStream;

    async fn accept(&self) -> io::Result<(DuplexStream, Peer)> {
        if self.accepted.load(Ordering::Relaxed) >= self.after {
            self.failures.fetch_add(1, Ordering::Relaxed);
            return Err(io::Error::from_raw_os_error(24));
        }
        let accepted = self.clients.lock().await.recv().await.unwrap();
        self.accepted.fetch_add(1, Ordering::Relaxed);
        Ok(accepted)
    }
}

#[tokio::test(start_paused = true)]
async fn failures_of_accept_are_followed_by_a_pause() {
    let service = Service::new(
        node(),
        Snapshots::new(|| async {
            sleep(Duration::from_millis(2)).await;
            Some(Arc::new(counting()))
        }),
    );
    let failures = Arc::new(AtomicUsize::new(0));
    let (streams, clients) = mpsc::channel(1);
    let clients = tokio::sync::Mutex::new(clients);
    let listener = Failing { clients, failures: Arc::clone(&failures), after: 4, accepted: AtomicUsize::new(0) };
    let site = service.on_tcp("127.0.0.1:9477".parse().unwrap());
    let limits = Limits { connections: 2, ..Limits::default() };
    tokio::spawn(serve(listener, site, limits, std::future::pending()));
    let mut tasks = JoinSet::new();
    for peer in 0..4 {
        let (client, server) = tokio::io::duplex(BUFFER);
        streams.send((server, local(1000 + peer))).await.unwrap();
        let mut client = crate::memory_server::Client(client);
        tasks.spawn(async move {
            loop {
                client.request("/api/v1/gpus").await;
                if client.status().await.is_none() {
                    return std::future::pending().await;
                }
            }
        });
    }
    sleep(2 * SECOND).await;
    let failures = failures.load(Ordering::Relaxed);
    assert!((10..=21).contains(&failures), "{failures}");
}
