//! A node with 5,000 processes on 8 GPUs, attacked by clients without read permission: memory stays
//! bounded, and the service responds.
//!
//! The service is a separate process, so that its memory can be measured: this test starts itself
//! again. Nothing depends on the speed of the machine.
#![cfg(test)]

mod clients;
mod service;

use std::time::Duration;

use clients::Client;
use service::Service;

/// Time limit beyond which an operation hangs.
const HANG_LIMIT: Duration = Duration::from_mins(2);
/// Maximum memory of the service.
const MEMORY_MAX_KIB: u64 = 256 << 10;

/// Paths with responses as long as a page or the metrics.
const LARGE: [&str; 6] = [
    "/api/v1/processes?limit=1000",
    "/api/v1/processes?limit=1000&order=id",
    "/api/v1/processes/summary?limit=1000",
    "/api/v1/owners?limit=1000",
    "/api/v1/verdicts?limit=1000",
    "/metrics",
];

/// Checks that health checks and metrics respond, for an attacking address and another one.
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

    // From one address: different paths, without reading.
    for at in 0..64 {
        attackers.push(Client::requesting(1, &service, &format!("/api/v1/processes?limit={}", 1000 - at)).await);
    }
    assert_answers(&service).await;
    // From many addresses.
    for address in 2..66 {
        let path = LARGE[usize::from(address) % LARGE.len()];
        attackers.push(Client::requesting(address, &service, path).await);
        if address % 16 == 0 {
            assert_answers(&service).await;
        }
    }
    // From many addresses, with many requests on each connection.
    for address in 66..82 {
        let client = Client::requesting(address, &service, LARGE[usize::from(address) % LARGE.len()]).await;
        for at in 1..50 {
            client.request(&format!("/api/v1/owners?limit={at}"));
        }
        attackers.push(client);
    }
    assert_answers(&service).await;
    // Clients that read a little now and then.
    for address in 82..98 {
        attackers.push(Client::requesting(address, &service, LARGE[usize::from(address) % LARGE.len()]).await);
    }
    for _ in 0..10 {
        for client in &attackers {
            client.read_some(1000);
        }
        assert_answers(&service).await;
    }
    // Event streams beyond their maximum.
    for address in 98..104 {
        for _ in 0..10 {
            attackers.push(Client::requesting(address, &service, "/api/v1/events").await);
        }
    }
    assert_answers(&service).await;
    // Clients that read everything, with different paths.
    let varying = (104..112).map(|address| clients::vary(address, &service, 12));
    let statuses: Vec<_> = futures_util::future::join_all(varying).await.into_iter().flatten().collect();
    assert!(statuses.iter().all(|status| ["200", "400", "503"].contains(&status.as_str())), "{statuses:?}");
    assert!(statuses.iter().any(|status| status == "200"), "{statuses:?}");
    assert_answers(&service).await;

    // Clients that read everything and keep requesting, on all places; and scrapers and readers
    // that read nothing.
    let mut loops = tokio::task::JoinSet::new();
    for address in 112..116 {
        for at in 0..16 {
            loops.spawn(clients::keep_requesting(address, service.address, at * 1000));
        }
    }
    for address in 116..132 {
        attackers.push(Client::requesting(address, &service, "/metrics").await);
        attackers.push(Client::requesting(address, &service, &format!("/api/v1/owners?limit={address}")).await);
        if address % 4 == 0 {
            assert_answers(&service).await;
            // From their address, too.
            let text = Client::from(112, &service).await.get("/livez").await;
            assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
        }
    }
    assert!(service.metric("uvmd_http_connections_closed_total{reason=\"displaced\"}").await > 0);
    drop(loops);

    let peak = service.peak_kib();
    println!("peak resident memory: {idle} KiB before the attack, {peak} KiB after it");
    assert!(peak < MEMORY_MAX_KIB, "{peak} KiB");

    // Forced actions are counted, and memory for responses is free again.
    let closed: u64 = service.metric("uvmd_http_connections_closed_total").await;
    assert!(closed > 0, "{closed}");
    drop(attackers);
    tokio::time::timeout(HANG_LIMIT, async {
        while service.metric("uvmd_http_response_bytes{kind=\"api\"}").await > 0 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await
    .expect("memory of responses is not freed");
    assert_eq!(Client::from(1, &service).await.get("/livez").await.lines().last(), Some("ok"));
}
