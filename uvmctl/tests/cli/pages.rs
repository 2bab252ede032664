//! Paginated lists, and servers whose lists do not end.

use std::{
    io::{Read, Write},
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use api::{
    EvictionPair, Evictions, Gpus, ProcessSummaries, ProcessSummary, Processes, Status, Verdicts,
    decision::{Decision, Decisions},
    rule::{OverrideStatus, Overrides, PolicyState},
};
use nodes::Crowd;
use serde_json::Value;

use crate::support::{run, serve_snapshot, stderr, stdout};

// === a node with many processes ===

#[test]
fn ps_and_top_show_every_process_of_a_node_with_5000_on_8_gpus() {
    let crowd = Crowd { processes: 5000, gpus: 8 };
    let mut snapshot = crowd.snapshot();
    // The tables do not show evictions.
    snapshot.evictions.clear();
    let url = serve_snapshot(snapshot);
    for arguments in [&["ps", "--totals"][..], &["top", "--once", "--totals", "--all"]] {
        let output = run(&url, arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let text = stdout(&output);
        for at in [0, 1, 2500, 4999] {
            let name = format!(" python-{at} ");
            assert_eq!(text.matches(&name).count(), 1, "{arguments:?} {name}");
        }
        assert_eq!(text.matches(" python-").count(), 5000, "{arguments:?}");
    }
}

#[test]
fn a_list_of_many_pages_is_one_document_in_json_with_each_item_as_the_daemon_wrote_it() {
    let crowd = Crowd { processes: 1100, gpus: 1 };
    let url = serve_snapshot(crowd.snapshot());
    for (arguments, path, list, all) in [
        (&["ps", "-o", "json"][..], "/api/v1/processes", "processes", 1100),
        (&["evictions", "-o", "json"], "/api/v1/evictions", "pairs", 1024),
    ] {
        let output = run(&url, arguments);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(document[list].as_array().unwrap().len(), all, "{path}");
        assert!(document["continue"].is_null() && document["remaining"] == 0 && document["time"].is_string());
        let page: Value =
            ureq::get(format!("{url}{path}?order=id&limit=3")).call().unwrap().body_mut().read_json().unwrap();
        assert_eq!(document[list].as_array().unwrap()[..3], page[list].as_array().unwrap()[..], "{path}");
    }
    let ordered: Processes = serde_json::from_str(&stdout(&run(&url, &["ps", "-o", "json"]))).unwrap();
    assert!(ordered.processes.iter().map(|process| process.pid).is_sorted());
}

#[test]
fn the_limit_of_decisions_is_independent_of_page_sizes() {
    // Pages of 7 decisions; a request for fewer returns one more than its limit.
    let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    let url = serve(move |_, path| {
        let number = |name: &str| {
            let value = path.split(['?', '&']).find_map(|part| part.strip_prefix(name))?;
            value.trim_start_matches('c').parse::<u64>().ok()
        };
        log.lock().unwrap().push(path.to_owned());
        let (begin, limit) = (number("continue=").unwrap_or(0), number("limit=").unwrap());
        let decision = |id| Decision { id, name: "p".to_owned(), ..Decision::default() };
        let end = begin + if limit < 7 { limit + 1 } else { 7 };
        let decisions: Vec<_> = (begin..end.min(100)).map(decision).collect();
        let (r#continue, remaining) = (Some(format!("c{end}")), 100 - end);
        serde_json::to_string(&Decisions { time: "2026-11-21T14:06:23Z".to_owned(), decisions, r#continue, remaining })
            .unwrap()
    });
    let output = run(&url, &["decisions", "-o", "json", "-n", "18"]);
    let document: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let ids: Vec<_> =
        document["decisions"].as_array().unwrap().iter().map(|each| each["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (0..18).collect::<Vec<_>>());
    assert_eq!(
        *asked.lock().unwrap(),
        ["limit=18", "limit=11&continue=c7", "limit=4&continue=c14"].map(|query| format!("/api/v1/decisions?{query}"))
    );
    let output = run(&url, &["decisions", "-n", "18"]);
    assert_eq!(stdout(&output).lines().count(), 1 + 18, "{}", stdout(&output));
}

// === faulty servers ===

/// Serves responses that `answer` makes from a request's number and path.
fn serve(answer: impl Fn(usize, &str) -> String + Send + Sync + 'static) -> String {
    serve_with_status(move |number, path| ("200 OK", answer(number, path)))
}

fn serve_with_status(answer: impl Fn(usize, &str) -> (&'static str, String) + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (answer, count) = (Arc::new(answer), AtomicUsize::new(0));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = vec![0; 8192];
            let Ok(length @ 1..) = stream.read(&mut request) else { continue };
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            let path = request.split(' ').nth(1).unwrap_or_default();
            let (status, body) = answer(count.fetch_add(1, Ordering::Relaxed), path);
            // The client may close the connection at any time.
            let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            let _ = stream.write_all(body.as_bytes());
        }
    });
    url
}

/// Page of the requested list, with one item and this cursor.
fn page(path: &str, cursor: Option<String>) -> String {
    let r#continue = cursor;
    let time = "2026-11-21T14:06:23Z".to_owned();
    let json = match path.split('?').next().unwrap() {
        "/api/v1/processes" | "/api/v1/processes/summary" => {
            let process =
                ProcessSummary { name: "p".to_owned(), state: "running".to_owned(), ..ProcessSummary::default() };
            serde_json::to_string(&ProcessSummaries { time, processes: vec![process], r#continue, remaining: 7 })
        }
        "/api/v1/verdicts" => serde_json::to_string(&Verdicts { time, ..Verdicts::default() }),
        "/api/v1/evictions" => {
            let pairs = Some(vec![EvictionPair::default()]);
            serde_json::to_string(&Evictions { time, pairs, r#continue, remaining: 7, ..Evictions::default() })
        }
        "/api/v1/overrides" => {
            let overrides = vec![OverrideStatus::default()];
            serde_json::to_string(&Overrides { overrides, r#continue, remaining: 7, ..Overrides::default() })
        }
        "/api/v1/policy" => serde_json::to_string(&PolicyState::default()),
        "/api/v1/gpus" => serde_json::to_string(&Gpus::default()),
        _ => serde_json::to_string(&Status { time, ..Status::default() }),
    };
    json.unwrap()
}

/// Commands that request a list.
const COMMANDS: [&[&str]; 7] = [
    &["ps", "--totals"],
    &["ps", "-o", "json"],
    &["evictions"],
    &["evictions", "-o", "json"],
    &["policy", "show"],
    &["policy", "show", "-o", "json"],
    &["top", "--once", "--totals"],
];

fn assert_gives_up(url: &str, arguments: &[&str], reason: &str) {
    let output = run(url, arguments);
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{arguments:?} {message}");
    assert!(message.contains("does not end: ") && message.contains(reason), "{arguments:?} {message}");
    assert_eq!(message.lines().count(), 1, "{message}");
}

#[test]
fn a_cyclic_list_is_rejected() {
    let url = serve(|number, path| page(path, Some(format!("c{}", number % 3))));
    for arguments in COMMANDS {
        assert_gives_up(&url, arguments, "a cursor is repeated");
    }
}

#[test]
fn an_endless_list_is_rejected() {
    let url = serve(|number, path| page(path, Some(format!("c{number}"))));
    for arguments in [COMMANDS[0], COMMANDS[1], COMMANDS[4]] {
        assert_gives_up(&url, arguments, "more than 1000 pages");
    }
}

#[test]
fn an_empty_page_with_a_cursor_is_rejected() {
    let url = serve(|number, path| {
        let mut page: Value = serde_json::from_str(&page(path, Some(format!("c{number}")))).unwrap();
        for list in ["processes", "pairs", "overrides"] {
            if let Some(list) = page[list].as_array_mut().filter(|_| number > 0) {
                list.clear();
            }
        }
        page.to_string()
    });
    assert_gives_up(&url, &["evictions"], "an empty page has a cursor");
    assert_gives_up(&url, &["evictions", "-o", "json"], "an empty page has a cursor");
}

#[test]
fn a_cursor_cannot_inject_into_requests() {
    for cursor in ["", "a&state=exited", "a b", "a\r\nHost: evil", "ä", "../../x?", &"a".repeat(4000)] {
        let cursor = cursor.to_owned();
        let url = serve(move |_, path| {
            assert!(path.len() < 200, "{path}");
            page(path, Some(cursor.clone()))
        });
        assert_gives_up(&url, &["ps", "--totals"], "is not a cursor of uvmd");
        assert_gives_up(&url, &["ps", "-o", "json"], "is not a cursor of uvmd");
    }
}

#[test]
fn an_oversized_list_is_rejected() {
    let url = serve(|number, path| {
        let mut page: Value = serde_json::from_str(&page(path, Some(format!("c{number}")))).unwrap();
        page["padding"] = "x".repeat(10 << 20).into();
        page.to_string()
    });
    assert_gives_up(&url, &["ps", "--totals"], "longer than 64.0 MiB");
}

#[test]
fn an_oversized_page_is_rejected() {
    let url = serve(|_, _| "x".repeat(17 << 20));
    let output = run(&url, &["ps"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(1), String::new()));
    assert!(stderr(&output).contains("is not uvmd's"), "{}", stderr(&output));
}

// === an overloaded daemon ===

#[test]
fn an_overloaded_daemon_is_retried() {
    let busy = |number, path: &str| match number {
        0 | 1 => ("503 Service Unavailable\r\nRetry-After: 0", r#"{"detail":"too much to do"}"#.to_owned()),
        _ => ("200 OK", page(path, None)),
    };
    let output = run(&serve_with_status(busy), &["ps", "--totals"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn retries_are_limited_and_end_with_the_daemons_words() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let url = serve_with_status(move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        ("503 Service Unavailable\r\nRetry-After: 0", r#"{"detail":"too much to do"}"#.to_owned())
    });
    let output = run(&url, &["ps"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("failed: too much to do"), "{}", stderr(&output));
    assert_eq!(asked.load(Ordering::Relaxed), 6);
}
