//! What one peer, or many, can hold of the server: over streams in memory and a clock of the test's own.

use std::sync::{Arc, Mutex};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, advance, sleep, timeout},
};
use web::{Events, Grant, Peer, Source, Sources, server::Limits};

use crate::{
    memory_server::{BUFFER, SECOND, Server, how_many_are_closed, large, local, remote},
    support::{always, busy},
};

#[tokio::test(start_paused = true)]
async fn a_peer_has_a_part_of_the_places_and_makes_room_for_itself_alone() {
    let server = Server::start(always(busy()));
    let mut other = server.connect(remote(2)).await;
    let mut greedy = Vec::new();
    for _ in 0..40 {
        greedy.push(server.connect(remote(1)).await);
        sleep(SECOND).await;
    }
    assert_eq!(how_many_are_closed(&mut greedy).await, 40 - 16);
    assert_eq!(how_many_are_closed(&mut greedy[..24]).await, 24, "the first to come are the first to go");
    other.ask("/livez").await;
    assert_eq!(other.status().await.as_deref(), Some("200"));
    assert_eq!(server.closed("displaced").await, 24);
}

#[tokio::test(start_paused = true)]
async fn where_all_places_are_taken_those_make_room_who_have_most() {
    let server = Server::start(always(busy()));
    let mut modest = server.connect(remote(200)).await;
    let mut greedy = Vec::new();
    for peer in 1..=4 {
        for _ in 0..16 {
            greedy.push(server.connect(remote(peer)).await);
            sleep(SECOND / 10).await;
        }
    }
    let mut late = server.ask(remote(201), "/livez").await;
    assert_eq!(late.status().await.as_deref(), Some("200"));
    modest.ask("/livez").await;
    assert_eq!(modest.status().await.as_deref(), Some("200"));
    assert_eq!(how_many_are_closed(&mut greedy).await, 2);
}

#[tokio::test(start_paused = true)]
async fn on_the_socket_each_user_is_a_peer_and_root_always_gets_in() {
    // Requests that are being answered make no room for anybody.
    let lately = Source::new(|_| std::future::pending());
    let server = Server::start(Sources { history: lately, ..always(busy()).into() });
    let mut waiting = Vec::new();
    for uid in 1000..1005 {
        for at in 0..20 {
            waiting.push(server.ask(local(uid), &format!("/api/v1/processes/20/history?samples={}", at + 1)).await);
        }
    }
    sleep(SECOND / 2).await;
    let mut root = server.ask(local(0), "/livez").await;
    assert_eq!(root.status().await.as_deref(), Some("200"));
    let mut user = server.ask(local(2000), "/livez").await;
    assert_eq!(user.status().await.as_deref(), Some("200"), "it has the reserve");
    // Nor can root lock itself out.
    let mut many = Vec::new();
    for _ in 0..20 {
        many.push(server.connect(local(0)).await);
        sleep(SECOND).await;
    }
    let mut root = server.ask(local(0), "/livez").await;
    assert_eq!(root.status().await.as_deref(), Some("200"));
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_waits_for_a_place_holds_up_nobody_who_has_one() {
    let lately = Source::new(|_| std::future::pending());
    let server = Server::start(Sources { history: lately, ..always(busy()).into() });
    let mut waiting = Vec::new();
    for at in 0..100 {
        waiting.push(server.ask(remote(1), &format!("/api/v1/processes/20/history?samples={}", at + 1)).await);
    }
    let mut other = server.ask(remote(2), "/livez").await;
    let begun = Instant::now();
    assert_eq!(other.status().await.as_deref(), Some("200"));
    assert!(begun.elapsed() < SECOND, "{:?}", begun.elapsed());
    // Of those that wait, the first make room for those that come after them.
    assert_eq!(server.closed("queue_full").await, 100 - 16 - 64);
}

#[tokio::test(start_paused = true)]
async fn who_takes_nothing_of_an_answer_is_closed_and_counted() {
    let server = Server::start(always(large()));
    let mut deaf = server.ask(remote(1), "/api/v1/processes").await;
    sleep(9 * SECOND).await;
    assert_eq!(server.closed("write_timeout").await, 0);
    sleep(2 * SECOND).await;
    assert_eq!(server.closed("write_timeout").await, 1);
    let mut rest = Vec::new();
    let read = deaf.0.read_to_end(&mut rest).await;
    assert!(read.is_err() || rest.len() <= BUFFER, "{}", rest.len());
    assert_eq!(server.metric("uvmd_http_response_bytes{kind=\"api\"}").await, 0);
}

#[tokio::test(start_paused = true)]
async fn who_takes_an_answer_too_slowly_is_closed_and_who_takes_it_in_time_is_not() {
    let server = Server::start(always(large()));
    let mut slow = server.ask(remote(1), "/api/v1/processes").await;
    let mut steady = server.ask(remote(2), "/api/v1/processes").await;
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
    steady.ask("/livez").await;
    assert_eq!(steady.status().await.as_deref(), Some("200"));
}

#[tokio::test(start_paused = true)]
async fn where_memory_for_answers_is_short_those_are_closed_who_take_nothing() {
    // Each answer is of a reading of its own, and takes 2 MiB.
    let snapshot = Arc::new(Mutex::new(large()));
    let server = Server::start(web::Snapshots::new(move || {
        let snapshot = Arc::new(snapshot.lock().unwrap().clone());
        std::future::ready(Some(snapshot))
    }));
    let mut deaf = Vec::new();
    for peer in 0..24 {
        deaf.push(server.ask(remote(peer), "/api/v1/processes").await);
        sleep(SECOND / 10).await;
    }
    assert!(server.metric("uvmd_http_response_bytes{kind=\"api\"}").await <= 24 << 20);
    let mut hungry = server.ask(remote(99), "/api/v1/processes").await;
    assert_eq!(hungry.status().await.as_deref(), Some("200"));
    let closed = server.closed("memory_pressure").await;
    assert!((5..24).contains(&closed), "{closed}");
    assert_eq!(server.metric("uvmd_http_requests_rejected_total{reason=\"response_memory\"}").await, 0);
}

#[tokio::test(start_paused = true)]
async fn streams_of_events_are_bounded_for_each_and_for_all_and_end_with_their_clients() {
    let server = Server::start(Sources { events: Events::default(), ..always(busy()).into() });
    let mut streams = Vec::new();
    for peer in [1, 2, 3, 4, 5] {
        for _ in 0..9 {
            streams.push(server.ask(remote(peer), "/api/v1/events").await);
        }
    }
    let mut statuses = Vec::new();
    for stream in &mut streams {
        statuses.push(stream.status().await.unwrap());
    }
    let of_peer = |at: usize| statuses[at * 9..(at + 1) * 9].iter().filter(|status| *status == "200").count();
    assert_eq!([0, 1, 2, 3, 4].map(of_peer), [8, 8, 8, 8, 0], "{statuses:?}");
    assert_eq!(server.metric("uvmd_http_event_streams").await, 32);
    assert_eq!(server.metric("uvmd_http_requests_rejected_total{reason=\"event_streams\"}").await, 4 + 9);
    drop(streams);
    sleep(SECOND).await;
    let mut again = server.ask(remote(5), "/api/v1/events").await;
    assert_eq!(again.status().await.as_deref(), Some("200"));
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_events_goes_on_for_longer_than_an_answer_may_take() {
    let events = Events::default();
    let server = Server::start(Sources { events, ..always(busy()).into() });
    let mut stream = server.ask(remote(1), "/api/v1/events").await;
    let mut bytes = vec![0; BUFFER];
    // A heartbeat every 15 s.
    for _ in 0..12 {
        assert!(timeout(20 * SECOND, stream.0.read(&mut bytes)).await.unwrap().unwrap() > 0);
    }
    assert_eq!(server.closed("send_timeout").await + server.closed("write_timeout").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_whose_head_does_not_come_and_a_connection_that_is_too_old_are_counted() {
    let limits = Limits { age: 30 * SECOND, ..Limits::default() };
    let server = Server::with(limits, always(large()));
    let mut half = server.connect(remote(1)).await;
    half.0.write_all(b"GET /livez HT").await.unwrap();
    sleep(4 * SECOND).await;
    assert_eq!(server.closed("head_timeout").await, 1);
    let mut old = server.ask(remote(2), "/api/v1/processes").await;
    let mut bytes = vec![0; 100];
    for _ in 0..33 {
        sleep(SECOND).await;
        let _ = old.0.read(&mut bytes).await;
    }
    assert_eq!(server.closed("expired").await, 1);
}

#[tokio::test(start_paused = true)]
async fn whoever_the_kernel_vouches_for_may_do_no_less_for_being_counted() {
    let server = Server::start(always(busy()));
    let peer = Peer::Local { uid: 7, pid: None, grant: Some(Grant::Read) };
    let mut reader = server.ask(peer, "/api/v1/processes/20/ranges").await;
    assert_eq!(reader.status().await.as_deref(), Some("200"));
    advance(SECOND).await;
    let mut other = server.ask(local(7), "/api/v1/processes/20/ranges").await;
    assert_eq!(other.status().await.as_deref(), Some("403"));
}
