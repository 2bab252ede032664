//! Resources of the server that one peer, or many, can hold: on streams in memory, with the clock
//! of the test.

use std::sync::{Arc, Mutex};

use api::decision::Event;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, advance, sleep, timeout},
};
use web::{Events, Grant, Peer, Source, Sources, server::Limits};

use crate::{
    memory_server::{BUFFER, Client, SECOND, Server, count_closed, large, local, remote},
    support::{always, busy},
};

#[tokio::test(start_paused = true)]
async fn a_peer_with_its_share_displaces_its_own_connections() {
    let server = Server::start(always(busy()));
    let mut other = server.connect(remote(2)).await;
    let mut greedy = Vec::new();
    for _ in 0..40 {
        greedy.push(server.connect(remote(1)).await);
        sleep(SECOND).await;
    }
    assert_eq!(count_closed(&mut greedy).await, 40 - 16);
    assert_eq!(count_closed(&mut greedy[..24]).await, 24, "the oldest ones");
    other.request("/livez").await;
    assert_eq!(other.status().await.as_deref(), Some("200"));
    assert_eq!(server.closed("displaced").await, 24);
}

#[tokio::test(start_paused = true)]
async fn without_a_free_place_connections_of_the_largest_peers_are_displaced() {
    let server = Server::start(always(busy()));
    let mut modest = server.connect(remote(200)).await;
    let mut greedy = Vec::new();
    for peer in 1..=4 {
        for _ in 0..16 {
            greedy.push(server.connect(remote(peer)).await);
            sleep(SECOND / 10).await;
        }
    }
    let mut late = server.request(remote(201), "/livez").await;
    assert_eq!(late.status().await.as_deref(), Some("200"));
    modest.request("/livez").await;
    assert_eq!(modest.status().await.as_deref(), Some("200"));
    assert_eq!(count_closed(&mut greedy).await, 2);
}

#[tokio::test(start_paused = true)]
async fn on_the_socket_each_user_is_a_peer_and_root_has_separate_places() {
    // Requests in progress are not displaced.
    let history = Source::new(|_| std::future::pending());
    let server = Server::start(Sources { history, ..always(busy()).into() });
    let mut waiting = Vec::new();
    for uid in 1000..1005 {
        for at in 0..20 {
            waiting.push(server.request(local(uid), &format!("/api/v1/processes/20/history?samples={}", at + 1)).await);
        }
    }
    sleep(SECOND / 2).await;
    let mut root = server.request(local(0), "/livez").await;
    assert_eq!(root.status().await.as_deref(), Some("200"));
    let mut user = server.request(local(2000), "/livez").await;
    assert_eq!(user.status().await.as_deref(), Some("200"), "on a reserved place");
    // Root's own connections do not lock it out.
    let mut many = Vec::new();
    for _ in 0..20 {
        many.push(server.connect(local(0)).await);
        sleep(SECOND).await;
    }
    let mut root = server.request(local(0), "/livez").await;
    assert_eq!(root.status().await.as_deref(), Some("200"));
}

#[tokio::test(start_paused = true)]
async fn connections_that_wait_do_not_delay_others() {
    let history = Source::new(|_| std::future::pending());
    let server = Server::start(Sources { history, ..always(busy()).into() });
    let mut waiting = Vec::new();
    for at in 0..100 {
        waiting.push(server.request(remote(1), &format!("/api/v1/processes/20/history?samples={}", at + 1)).await);
    }
    let mut other = server.request(remote(2), "/livez").await;
    let begun = Instant::now();
    assert_eq!(other.status().await.as_deref(), Some("200"));
    assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
    // The first waiting connections are removed for later ones of their peer.
    assert_eq!(server.closed("queue_full").await, 100 - 16 - 64);
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_reads_nothing_is_closed_and_counted() {
    let server = Server::start(always(large()));
    let mut stalled = server.request(remote(1), "/api/v1/processes").await;
    sleep(9 * SECOND).await;
    assert_eq!(server.closed("write_timeout").await, 0);
    sleep(2 * SECOND).await;
    assert_eq!(server.closed("write_timeout").await, 1);
    let mut rest = Vec::new();
    let read = stalled.0.read_to_end(&mut rest).await;
    assert!(read.is_err() || rest.len() <= BUFFER, "{}", rest.len());
    assert_eq!(server.metric("uvmd_http_response_bytes{kind=\"api\"}").await, 0);
}

#[tokio::test(start_paused = true)]
async fn only_a_peer_that_reads_a_response_too_slowly_is_closed() {
    let server = Server::start(always(large()));
    let mut slow = server.request(remote(1), "/api/v1/processes").await;
    let mut steady = server.request(remote(2), "/api/v1/processes").await;
    let (mut taken_slowly, mut taken_steadily) = (0, 0);
    let mut bytes = vec![0; 1 << 16];
    for _ in 0..65 {
        sleep(SECOND).await;
        taken_slowly += slow.0.read(&mut bytes[..100]).await.unwrap_or(0);
        for _ in 0..16 {
            if let Ok(Ok(length)) = timeout(SECOND / 100, steady.0.read(&mut bytes)).await {
                taken_steadily += length;
            }
        }
    }
    assert!(taken_slowly < 100_000 && taken_steadily > 1 << 20, "{taken_slowly} {taken_steadily}");
    assert_eq!((server.closed("send_timeout").await, server.closed("write_timeout").await), (1, 0));
    steady.request("/livez").await;
    assert_eq!(steady.status().await.as_deref(), Some("200"));
}

#[tokio::test(start_paused = true)]
async fn while_memory_is_short_peers_that_read_nothing_are_closed() {
    // Each response is built from a separate reading, and takes 2 MiB.
    let snapshot = Arc::new(Mutex::new(large()));
    let server = Server::start(web::Snapshots::new(move || {
        let snapshot = Arc::new(snapshot.lock().unwrap().clone());
        std::future::ready(Some(snapshot))
    }));
    let mut stalled = Vec::new();
    for peer in 0..24 {
        stalled.push(server.request(remote(peer), "/api/v1/processes").await);
        sleep(SECOND / 10).await;
    }
    assert!(server.metric("uvmd_http_response_bytes{kind=\"api\"}").await <= 24 << 20);
    let mut next = server.request(remote(99), "/api/v1/processes").await;
    assert_eq!(next.status().await.as_deref(), Some("200"));
    let closed = server.closed("memory_pressure").await;
    assert!((5..24).contains(&closed), "{closed}");
    assert_eq!(server.metric("uvmd_http_requests_rejected_total{reason=\"response_memory\"}").await, 0);
}

/// Server with event streams, and what they send.
fn stream_server() -> (Server, Events) {
    let events = Events::default();
    (Server::start(Sources { events: events.clone(), ..always(busy()).into() }), events)
}

/// Requests event streams, and returns their statuses.
async fn open_streams(
    server: &Server,
    peers: impl IntoIterator<Item = Peer>,
    of_each: usize,
    streams: &mut Vec<Client>,
) -> Vec<String> {
    let mut statuses = Vec::new();
    for peer in peers {
        for _ in 0..of_each {
            let mut stream = server.request(peer, "/api/v1/events").await;
            statuses.push(stream.status().await.unwrap());
            streams.push(stream);
        }
    }
    statuses
}

/// Rest of a stream that ends.
async fn rest(stream: &mut Client) -> String {
    let mut text = String::new();
    timeout(SECOND, stream.0.read_to_string(&mut text)).await.expect("the stream is open").unwrap();
    text
}

#[tokio::test(start_paused = true)]
async fn event_streams_are_limited_by_peer_and_shared_by_peers() {
    let (server, _) = stream_server();
    let mut streams = Vec::new();
    let greedy = open_streams(&server, (1001..=1004).map(local), 9, &mut streams).await;
    assert_eq!(greedy.iter().filter(|status| *status == "200").count(), 4 * 8);
    let late = open_streams(&server, [local(1005)], 9, &mut streams).await;
    assert_eq!(late.iter().filter(|status| *status == "200").count(), 6, "{late:?}");
    assert_eq!(server.metric("uvmd_http_event_streams").await, 32);
    assert_eq!(server.metric("uvmd_http_requests_rejected_total{reason=\"event_streams\"}").await, 4 + 3);
    assert_eq!(server.closed("stream_displaced").await, 6);
    assert!(rest(&mut streams[0]).await.contains(": stream_displaced"), "the oldest one of the peer with the most");
    drop(streams);
    sleep(SECOND).await;
    let mut again = server.request(local(1005), "/api/v1/events").await;
    assert_eq!(again.status().await.as_deref(), Some("200"));
}

#[tokio::test(start_paused = true)]
async fn users_on_the_socket_have_an_event_stream_whoever_has_all_over_tcp() {
    let (server, _) = stream_server();
    let mut streams = Vec::new();
    let many = open_streams(&server, (1..=40).map(remote), 1, &mut streams).await;
    assert_eq!(many.iter().filter(|status| *status == "200").count(), 24);
    let users = open_streams(&server, (1001..=1008).map(local), 1, &mut streams).await;
    assert!(users.iter().all(|status| status == "200"), "{users:?}");
    assert_eq!(server.closed("stream_displaced").await, 0);
}

#[tokio::test(start_paused = true)]
async fn reader_keeps_its_stream_beside_users_with_as_many_as_they_can_get() {
    let (server, events) = stream_server();
    let mut streams = Vec::new();
    open_streams(&server, (1001..1008).map(local), 16, &mut streams).await;
    let mut reader = server.request(local(2000), "/api/v1/events").await;
    assert_eq!(reader.status().await.as_deref(), Some("200"));
    open_streams(&server, (1001..1008).map(local), 16, &mut streams).await;
    events.tell(Event { r#type: "policy_switched".to_owned(), ..Event::default() });
    let mut bytes = vec![0; BUFFER];
    let mut text = String::new();
    while !text.contains("policy_switched") {
        let length = timeout(SECOND, reader.0.read(&mut bytes)).await.expect("no event").unwrap();
        assert!(length > 0, "{text}");
        text += str::from_utf8(&bytes[..length]).unwrap();
    }
    let mut scrape = server.request(remote(1), "/metrics").await;
    assert_eq!(scrape.status().await.as_deref(), Some("200"));
}

#[tokio::test(start_paused = true)]
async fn users_with_write_permission_have_an_event_stream_whoever_has_the_others() {
    let (server, _) = stream_server();
    let mut streams = Vec::new();
    let many = open_streams(&server, (1000..1040).map(local), 1, &mut streams).await;
    assert_eq!(many.iter().filter(|status| *status == "200").count(), 32);
    for peer in [local(0), Peer::Local { uid: 3000, pid: None, grant: Some(Grant::Write) }] {
        let mut stream = server.request(peer, "/api/v1/events").await;
        assert_eq!(stream.status().await.as_deref(), Some("200"), "{peer:?}");
    }
    assert_eq!(server.closed("stream_displaced").await, 0, "all have one");
}

#[tokio::test(start_paused = true)]
async fn event_stream_that_nobody_reads_is_closed_and_counted() {
    let (server, events) = stream_server();
    let _stalled = server.request(remote(1), "/api/v1/events").await;
    sleep(SECOND).await;
    for _ in 0..1000 {
        events.tell(Event { r#type: "policy_switched".to_owned(), ..Event::default() });
    }
    sleep(11 * SECOND).await;
    assert_eq!(server.closed("write_timeout").await, 1);
    assert_eq!(server.metric("uvmd_http_event_streams").await, 0);
}

#[tokio::test(start_paused = true)]
async fn an_event_stream_has_no_send_timeout() {
    let (server, _) = stream_server();
    let mut stream = server.request(remote(1), "/api/v1/events").await;
    let mut bytes = vec![0; BUFFER];
    // A heartbeat every 15 s.
    for _ in 0..12 {
        assert!(timeout(20 * SECOND, stream.0.read(&mut bytes)).await.unwrap().unwrap() > 0);
    }
    assert_eq!(server.closed("send_timeout").await + server.closed("write_timeout").await, 0);
}

#[tokio::test(start_paused = true)]
async fn head_timeouts_and_expired_connections_are_counted() {
    let limits = Limits { age: 30 * SECOND, ..Limits::default() };
    let server = Server::with(limits, always(large()));
    let mut half = server.connect(remote(1)).await;
    half.0.write_all(b"GET /livez HT").await.unwrap();
    sleep(4 * SECOND).await;
    assert_eq!(server.closed("head_timeout").await, 1);
    let mut old = server.request(remote(2), "/api/v1/processes").await;
    let mut bytes = vec![0; 100];
    for _ in 0..33 {
        sleep(SECOND).await;
        let _ = old.0.read(&mut bytes).await;
    }
    assert_eq!(server.closed("expired").await, 1);
}

#[tokio::test(start_paused = true)]
async fn permissions_of_local_peers_apply_on_limited_connections() {
    let server = Server::start(always(busy()));
    let peer = Peer::Local { uid: 7, pid: None, grant: Some(Grant::Read) };
    let mut reader = server.request(peer, "/api/v1/processes/20/ranges").await;
    assert_eq!(reader.status().await.as_deref(), Some("200"));
    advance(SECOND).await;
    let mut other = server.request(local(7), "/api/v1/processes/20/ranges").await;
    assert_eq!(other.status().await.as_deref(), Some("403"));
}
