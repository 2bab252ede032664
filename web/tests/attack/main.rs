//! A node with 5,000 processes on 8 GPUs, attacked by clients that may read nothing that needs permission: memory stays bounded, and it goes on answering.
//!
//! The service is a process of its own, so that its memory is its own: this test starts itself once more. Nothing here depends on how fast anything is.
#![cfg(test)]

mod clients;
mod service;

use std::time::Duration;

use clients::Client;
use service::Service;

/// Nothing takes so long that does not hang.
const HUNG: Duration = Duration::from_mins(2);
/// What the service may take at most, whatever clients do.
const MEMORY_MAX_KIB: u64 = 256 << 10;

/// Answers that are as long as a page may be, or as the metrics are.
const LARGE: [&str; 6] = [
    "/api/v1/processes?limit=1000",
    "/api/v1/processes?limit=1000&order=id",
    "/api/v1/processes/summary?limit=1000",
    "/api/v1/owners?limit=1000",
    "/api/v1/verdicts?limit=1000",
    "/metrics",
];

/// Somebody who only wants to know whether it is well, from an address that takes part in the attack and from one that does not.
async fn assert_answers(service: &Service) {
    for address in [1, 250] {
        for path in ["/livez", "/metrics"] {
            let text = Client::from(address, service).await.get(path).await;
            assert!(
                text.starts_with("HTTP/1.1 200 OK"),
                "{path} from {address}: {}",
                text.get(..1000).unwrap_or(&text)
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_bounded_and_the_service_answers_whatever_clients_do() {
    let service = Service::start();
    assert_answers(&service).await;
    let idle = service.peak_kib();
    let mut attackers = Vec::new();

    // From one address: each asks for something else, and takes nothing.
    for at in 0..64 {
        attackers.push(Client::asking(1, &service, &format!("/api/v1/processes?limit={}", 1000 - at)).await);
    }
    assert_answers(&service).await;
    // From many.
    for address in 2..66 {
        let path = LARGE[usize::from(address) % LARGE.len()];
        attackers.push(Client::asking(address, &service, path).await);
        if address % 16 == 0 {
            assert_answers(&service).await;
        }
    }
    // From many, by way of many requests on each connection.
    for address in 66..82 {
        let client = Client::asking(address, &service, LARGE[usize::from(address) % LARGE.len()]).await;
        for at in 1..50 {
            client.ask(&format!("/api/v1/owners?limit={at}"));
        }
        attackers.push(client);
    }
    assert_answers(&service).await;
    // Those who take a little now and then.
    for address in 82..98 {
        attackers.push(Client::asking(address, &service, LARGE[usize::from(address) % LARGE.len()]).await);
    }
    for _ in 0..10 {
        for client in &attackers {
            client.take(1000);
        }
        assert_answers(&service).await;
    }
    // Streams of events, more than there may be.
    for address in 98..104 {
        for _ in 0..10 {
            attackers.push(Client::asking(address, &service, "/api/v1/events").await);
        }
    }
    assert_answers(&service).await;
    // Those who take everything, and never ask for the same.
    let varying = (104..112).map(|address| clients::vary(address, &service, 12));
    let statuses: Vec<_> = futures_util::future::join_all(varying).await.into_iter().flatten().collect();
    assert!(statuses.iter().all(|status| ["200", "400", "503"].contains(&status.as_str())), "{statuses:?}");
    assert!(statuses.iter().any(|status| status == "200"), "{statuses:?}");
    assert_answers(&service).await;

    // Those who take everything and ask on, as many as have places; beside them scrapers and readers that take nothing.
    let mut loops = tokio::task::JoinSet::new();
    for address in 112..116 {
        for at in 0..16 {
            loops.spawn(clients::keep_asking(address, service.address, at * 1000));
        }
    }
    for address in 116..132 {
        attackers.push(Client::asking(address, &service, "/metrics").await);
        attackers.push(Client::asking(address, &service, &format!("/api/v1/owners?limit={address}")).await);
        if address % 4 == 0 {
            assert_answers(&service).await;
            // From where they come from, too.
            let text = Client::from(112, &service).await.get("/livez").await;
            assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
        }
    }
    assert!(service.metric("uvmd_http_connections_closed_total{reason=\"displaced\"}").await > 0);
    drop(loops);

    let peak = service.peak_kib();
    println!("peak resident memory: {idle} KiB before the attack, {peak} KiB after it");
    assert!(peak < MEMORY_MAX_KIB, "{peak} KiB");

    // What it was forced to do shows, and what it held for them is free again.
    let closed: u64 = service.metric("uvmd_http_connections_closed_total").await;
    assert!(closed > 0, "{closed}");
    drop(attackers);
    tokio::time::timeout(HUNG, async {
        while service.metric("uvmd_http_response_bytes{kind=\"api\"}").await > 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await
    .expect("what answers took is not free");
    assert_eq!(Client::from(1, &service).await.get("/livez").await.lines().last(), Some("ok"));
}
