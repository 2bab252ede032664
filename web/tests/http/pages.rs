//! Pages of lists.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use axum::{Router, http::StatusCode};
use model::{Access, Decision, Process, Snapshot, Stage};
use nodes::Crowd;
use serde_json::{Value, json};
use web::{Controls, DecisionSource, Snapshots, Sources, VerdictSource};

use crate::{
    fakes::{Store, decision, rules},
    support::{always, assert_problem, get, get_as_reader, router, router_over},
};

const CROWD: Crowd = Crowd { processes: 250, gpus: 1 };

fn crowded() -> Router {
    let crowd = CROWD;
    let verdicts = Arc::new(crowd.verdicts());
    let decisions: Arc<[Decision]> = (1..=250).rev().map(|id| decision(id, Stage::Confirmed)).collect();
    router_over(Sources {
        verdicts: VerdictSource::new(move || Arc::clone(&verdicts)),
        decisions: DecisionSource::new(move || Arc::clone(&decisions)),
        controls: Controls::new(Store::with(&rules(250))),
        ..always(crowd.snapshot()).into()
    })
}

/// All pages from this path on.
async fn pages(router: &Router, path: &str) -> Vec<Value> {
    let mut pages = vec![get(router, path).await.json()];
    while let Some(cursor) = pages.last().unwrap()["continue"].as_str() {
        assert!(pages.len() < 1000, "the pages do not end");
        let joint = if path.contains('?') { '&' } else { '?' };
        pages.push(get(router, &format!("{path}{joint}continue={cursor}")).await.json());
    }
    pages
}

fn items(pages: &[Value], list: &str) -> Vec<Value> {
    pages.iter().flat_map(|page| page[list].as_array().unwrap()).cloned().collect()
}

#[tokio::test]
async fn a_list_has_100_items_by_default_and_the_number_of_remaining_ones() {
    let router = crowded();
    for (path, list, all) in [
        ("/api/v1/processes", "processes", 250),
        ("/api/v1/processes/summary", "processes", 250),
        ("/api/v1/owners", "owners", 250),
        ("/api/v1/verdicts", "active", 125),
        ("/api/v1/evictions", "pairs", 250),
        ("/api/v1/decisions", "decisions", 250),
        ("/api/v1/overrides", "overrides", 250),
    ] {
        let first = get(&router, path).await.json();
        assert_eq!(first[list].as_array().unwrap().len(), 100, "{path}");
        assert_eq!(first["remaining"], all - 100, "{path}");
        assert!(first["continue"].is_string(), "{path}");
        let three = get(&router, &format!("{path}?limit=3")).await.json();
        assert_eq!(three[list].as_array().unwrap()[..], first[list].as_array().unwrap()[..3], "{path}");
        for limit in ["0", "1001", "-1", "x", ""] {
            let response = get(&router, &format!("{path}?limit={limit}")).await;
            assert_problem(&response, StatusCode::BAD_REQUEST, "whole number from 1 to 1000");
        }
    }
}

#[tokio::test]
async fn pages_of_any_length_form_the_list_in_its_order() {
    let router = crowded();
    for (path, list, all) in [
        ("/api/v1/processes", "processes", 250),
        ("/api/v1/processes?order=id", "processes", 250),
        ("/api/v1/processes/summary?order=id", "processes", 250),
        ("/api/v1/owners?order=id", "owners", 250),
        ("/api/v1/verdicts?order=id", "active", 125),
        ("/api/v1/evictions?order=id", "pairs", 250),
        ("/api/v1/decisions", "decisions", 250),
        ("/api/v1/overrides", "overrides", 250),
    ] {
        let joint = if path.contains('?') { '&' } else { '?' };
        let all_items = items(&[get(&router, &format!("{path}{joint}limit=1000")).await.json()], list);
        assert_eq!(all_items.len(), all, "{path}");
        for limit in [1000, 99, 7] {
            let pages = pages(&router, &format!("{path}{joint}limit={limit}")).await;
            assert_eq!(items(&pages, list), all_items, "{path} {limit}");
            let remaining: Vec<u64> = pages.iter().map(|page| page["remaining"].as_u64().unwrap()).collect();
            let following = (1_u64..).map(|page| (all as u64).saturating_sub(page * limit));
            assert_eq!(remaining, following.take(remaining.len()).collect::<Vec<_>>(), "{path} {limit}");
        }
    }
}

#[tokio::test]
async fn ended_verdicts_follow_active_ones() {
    let mut verdicts = CROWD.verdicts();
    let ended = verdicts.active.split_off(100);
    verdicts.ended =
        ended.into_iter().map(|each| model::Verdict { ended_at: Some(each.confirmed_at), ..each }).collect();
    let verdicts = Arc::new(verdicts);
    let source = VerdictSource::new(move || Arc::clone(&verdicts));
    let router = router_over(Sources { verdicts: source, ..always(CROWD.snapshot()).into() });
    let pages = pages(&router, "/api/v1/verdicts?limit=60").await;
    let counts = |list: &str| pages.iter().map(|page| page[list].as_array().unwrap().len()).collect::<Vec<_>>();
    assert_eq!((counts("active"), counts("ended")), (vec![60, 40, 0], vec![0, 20, 5]));
}

/// A list that changes with each snapshot: the last process becomes the busiest, and a new one
/// starts.
fn changing() -> Router {
    let snapshots = AtomicU32::new(0);
    let base = Arc::new(CROWD.snapshot());
    router_over(Snapshots::new(move || {
        let number = snapshots.fetch_add(1, Ordering::Relaxed) + 1;
        let mut snapshot = Snapshot::clone(&base);
        let mut late = Vec::new();
        for at in 0..number {
            let process = snapshot.processes.iter_mut().rev().nth(at as usize).unwrap();
            process.host.cpu_read_faults = 1 << (40 + at);
            let id = model::ProcessId { pid: 100_000 + at, start_ticks: 1 };
            late.push(Process::new(id, "late"));
        }
        snapshot.processes.append(&mut late);
        snapshot.processes.iter_mut().for_each(|process| {
            process.gpus.values_mut().for_each(|counters| counters.fault_entries[Access::Read] += u64::from(number));
        });
        std::future::ready(Some(Arc::new(snapshot)))
    }))
}

#[tokio::test]
async fn by_id_a_process_that_stays_is_listed_exactly_once() {
    let pages = pages(&changing(), "/api/v1/processes?order=id&limit=20").await;
    assert!(pages.len() > 10);
    let pids: Vec<u64> = items(&pages, "processes").iter().map(|process| process["pid"].as_u64().unwrap()).collect();
    assert!(pids.is_sorted(), "{pids:?}");
    let listed: BTreeSet<u64> = pids.iter().copied().collect();
    assert_eq!(listed.len(), pids.len());
    assert!((0..250).all(|at| listed.contains(&u64::from(CROWD.id(at).pid))));
}

#[tokio::test]
async fn by_activity_the_first_page_has_the_busiest_processes() {
    let pages = pages(&changing(), "/api/v1/processes?limit=20").await;
    let first = &pages[0]["processes"][0];
    assert_eq!(first["pid"], CROWD.id(249).pid);
    // A process that overtakes the begin of a page is on none of the following ones, as documented.
    let listed: BTreeSet<u64> = items(&pages, "processes").iter().map(|each| each["pid"].as_u64().unwrap()).collect();
    let overtook = (1..pages.len()).map(|at| u64::from(CROWD.id(249 - at).pid));
    assert!(overtook.into_iter().any(|pid| !listed.contains(&pid)));
}

#[tokio::test]
async fn a_cursor_of_another_list_is_a_problem() {
    let router = crowded();
    let cursor =
        get(&router, "/api/v1/processes?limit=5&uid=1001").await.json()["continue"].as_str().unwrap().to_owned();
    let second = get(&router, &format!("/api/v1/processes?limit=9&uid=1001&continue={cursor}")).await;
    assert_eq!(second.json()["processes"].as_array().unwrap().len(), 9);
    let mut tampered = cursor.clone();
    tampered.replace_range(2..3, if &cursor[2..3] == "A" { "B" } else { "A" });
    for path in [
        "/api/v1/processes?continue=".to_owned(),
        "/api/v1/processes?continue=null".to_owned(),
        "/api/v1/processes?continue=%00%ff".to_owned(),
        format!("/api/v1/processes?continue={}", "A".repeat(4000)),
        format!("/api/v1/processes?uid=1001&continue={tampered}"),
        format!("/api/v1/processes?continue={cursor}"),
        format!("/api/v1/processes?uid=1002&continue={cursor}"),
        format!("/api/v1/processes?uid=1001&order=id&continue={cursor}"),
        format!("/api/v1/processes?uid=1001&state=running&continue={cursor}"),
        format!("/api/v1/processes/summary?uid=1001&continue={cursor}"),
        format!("/api/v1/owners?continue={cursor}"),
        format!("/api/v1/verdicts?continue={cursor}"),
        format!("/api/v1/evictions?continue={cursor}"),
        format!("/api/v1/decisions?continue={cursor}"),
        format!("/api/v1/overrides?continue={cursor}"),
    ] {
        assert_problem(&get(&router, &path).await, StatusCode::BAD_REQUEST, "`continue` is");
    }
    // Cursors of another run of the service are invalid.
    let again = get(&crowded(), &format!("/api/v1/processes?limit=5&uid=1001&continue={cursor}")).await;
    assert_problem(&again, StatusCode::BAD_REQUEST, "an earlier run of uvmd");
}

#[tokio::test]
async fn a_cursor_of_a_reader_grants_no_read_permission() {
    let router = crowded();
    for (path, list, secret) in [
        ("/api/v1/verdicts", "active", "/ranges/0/begin"),
        ("/api/v1/decisions", "decisions", "/ranges/0/begin"),
        ("/api/v1/overrides", "overrides", "/override/match/range/begin"),
    ] {
        let cursor = get_as_reader(&router, path).await.json()["continue"].as_str().unwrap().to_owned();
        let path = format!("{path}?continue={cursor}");
        let seen = |response: &Value| response[list][0].pointer(secret).cloned();
        assert!(seen(&get_as_reader(&router, &path).await.json()).is_some(), "{path}");
        assert_eq!(seen(&get(&router, &path).await.json()), None, "{path}");
    }
}

#[tokio::test]
async fn a_deletion_between_two_pages_leaves_no_gap() {
    let store = Store::with(&rules(10));
    let router = router_over(Sources { controls: Controls::new(store.clone()), ..always(CROWD.snapshot()).into() });
    let ids = |response: &Value| {
        let overrides = response["overrides"].as_array().unwrap().iter();
        overrides.map(|each| each["override"]["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let first = get(&router, "/api/v1/overrides?limit=3").await.json();
    assert_eq!(ids(&first), ["rule-0", "rule-1", "rule-2"]);
    let next = format!("/api/v1/overrides?limit=3&continue={}", first["continue"].as_str().unwrap());
    store.remove_now("rule-2");
    assert_eq!(ids(&get(&router, &next).await.json()), ["rule-3", "rule-4", "rule-5"]);
    let router = router_over(Sources { controls: Controls::new(store.clone()), ..always(CROWD.snapshot()).into() });
    let first = get(&router, "/api/v1/overrides?limit=3").await.json();
    let next = format!("/api/v1/overrides?limit=3&continue={}", first["continue"].as_str().unwrap());
    store.remove_now("rule-0");
    assert_eq!(ids(&get(&router, &next).await.json()), ["rule-4", "rule-5", "rule-6"]);
}

#[tokio::test]
async fn processes_are_selected_by_user() {
    let router = crowded();
    let pages = pages(&router, "/api/v1/processes?uid=1003&limit=10").await;
    let processes = items(&pages, "processes");
    assert_eq!(processes.len(), (0..250).filter(|at| at % 16 == 3).count());
    assert!(processes.iter().all(|process| process["uid"] == 1003));
    assert_eq!(get(&router, "/api/v1/processes?uid=7").await.json()["processes"], json!([]));
    assert_eq!(get(&router, "/api/v1/processes?uid=root").await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_summary_has_the_fields_of_the_list_without_breakdowns() {
    let router = router(CROWD.snapshot());
    let full = get(&router, "/api/v1/processes?limit=5").await.json();
    let response = get(&router, "/api/v1/processes/summary?limit=5").await;
    let summaries = response.json();
    assert_eq!((&full["time"], &full["remaining"]), (&summaries["time"], &summaries["remaining"]));
    for (full, summary) in full["processes"].as_array().unwrap().iter().zip(summaries["processes"].as_array().unwrap())
    {
        for (name, value) in summary.as_object().unwrap().iter().filter(|(name, _)| *name != "gpus") {
            assert_eq!(&full[name], value, "{name}");
        }
        let missing = full.as_object().unwrap().keys().filter(|name| summary.get(name.as_str()).is_none());
        for name in missing {
            let is_breakdown = ["_by_access", "_by_cause", "_by_kind"].iter().any(|end| name.ends_with(end));
            let is_distribution = full[name]["p99"].is_u64();
            assert!(is_breakdown || is_distribution, "{name}");
        }
        let names = |gpus: &Value| {
            let gpus = gpus.as_array().unwrap().iter();
            gpus.map(|gpu| (gpu["gpu"].clone(), gpu["uuid"].clone())).collect::<Vec<_>>()
        };
        assert_eq!(names(&summary["gpus"]), names(&full["gpus"]));
    }
}

#[tokio::test]
async fn a_page_of_large_items_ends_before_the_maximum_length() {
    let router = router(Crowd { processes: 300, gpus: 8 }.snapshot());
    let pages = pages(&router, "/api/v1/processes?limit=1000").await;
    assert!(pages.len() > 3, "{}", pages.len());
    assert_eq!(items(&pages, "processes").len(), 300);
    for page in pages {
        assert!(page.to_string().len() < 2 << 20);
    }
}
