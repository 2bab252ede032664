//! Lists come in pages that follow each other.

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
    fakes::{Memory, decision, rules},
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
        controls: Controls::new(Memory::with(&rules(250))),
        ..always(crowd.snapshot()).into()
    })
}

/// Every page from here on.
async fn pages(router: &Router, path: &str) -> Vec<Value> {
    let mut pages = vec![get(router, path).await.json()];
    while let Some(cursor) = pages.last().unwrap()["continue"].as_str() {
        assert!(pages.len() < 1000, "it does not end");
        let joint = if path.contains('?') { '&' } else { '?' };
        pages.push(get(router, &format!("{path}{joint}continue={cursor}")).await.json());
    }
    pages
}

fn items(pages: &[Value], list: &str) -> Vec<Value> {
    pages.iter().flat_map(|page| page[list].as_array().unwrap()).cloned().collect()
}

#[tokio::test]
async fn a_list_has_100_items_unless_the_request_says_and_tells_how_many_follow() {
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
            let refused = get(&router, &format!("{path}?limit={limit}")).await;
            assert_problem(&refused, StatusCode::BAD_REQUEST, "whole number from 1 to 1000");
        }
    }
}

#[tokio::test]
async fn pages_of_whatever_length_are_together_the_whole_list_in_its_order() {
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
        let whole = items(&[get(&router, &format!("{path}{joint}limit=1000")).await.json()], list);
        assert_eq!(whole.len(), all, "{path}");
        for limit in [1000, 99, 7] {
            let pages = pages(&router, &format!("{path}{joint}limit={limit}")).await;
            assert_eq!(items(&pages, list), whole, "{path} {limit}");
            let remaining: Vec<u64> = pages.iter().map(|page| page["remaining"].as_u64().unwrap()).collect();
            let behind = (1_u64..).map(|page| (all as u64).saturating_sub(page * limit));
            assert_eq!(remaining, behind.take(remaining.len()).collect::<Vec<_>>(), "{path} {limit}");
        }
    }
}

#[tokio::test]
async fn verdicts_that_are_over_come_behind_those_in_force() {
    let mut verdicts = CROWD.verdicts();
    let over = verdicts.active.split_off(100);
    verdicts.ended =
        over.into_iter().map(|each| model::Verdict { ended_at: Some(each.confirmed_at), ..each }).collect();
    let verdicts = Arc::new(verdicts);
    let judged = VerdictSource::new(move || Arc::clone(&verdicts));
    let router = router_over(Sources { verdicts: judged, ..always(CROWD.snapshot()).into() });
    let pages = pages(&router, "/api/v1/verdicts?limit=60").await;
    let counts = |list: &str| pages.iter().map(|page| page[list].as_array().unwrap().len()).collect::<Vec<_>>();
    assert_eq!((counts("active"), counts("ended")), (vec![60, 40, 0], vec![0, 20, 5]));
}

/// A list that changes with each look: who was last becomes the busiest, and one more begins.
fn restless() -> Router {
    let looks = AtomicU32::new(0);
    let base = Arc::new(CROWD.snapshot());
    router_over(Snapshots::new(move || {
        let look = looks.fetch_add(1, Ordering::Relaxed) + 1;
        let mut snapshot = Snapshot::clone(&base);
        let mut late = Vec::new();
        for at in 0..look {
            let process = snapshot.processes.iter_mut().rev().nth(at as usize).unwrap();
            process.host.cpu_read_faults = 1 << (40 + at);
            let id = model::ProcessId { pid: 100_000 + at, start_ticks: 1 };
            late.push(Process::new(id, "late"));
        }
        snapshot.processes.append(&mut late);
        snapshot.processes.iter_mut().for_each(|process| {
            process.gpus.values_mut().for_each(|counters| counters.fault_entries[Access::Read] += u64::from(look));
        });
        std::future::ready(Some(Arc::new(snapshot)))
    }))
}

#[tokio::test]
async fn by_id_whoever_is_there_all_the_while_is_listed_exactly_once_however_the_list_changes() {
    let pages = pages(&restless(), "/api/v1/processes?order=id&limit=20").await;
    assert!(pages.len() > 10);
    let pids: Vec<u64> = items(&pages, "processes").iter().map(|process| process["pid"].as_u64().unwrap()).collect();
    assert!(pids.is_sorted(), "{pids:?}");
    let there: BTreeSet<u64> = pids.iter().copied().collect();
    assert_eq!(there.len(), pids.len());
    assert!((0..250).all(|at| there.contains(&u64::from(CROWD.id(at).pid))));
}

#[tokio::test]
async fn by_activity_the_first_page_has_who_does_most_now() {
    let pages = pages(&restless(), "/api/v1/processes?limit=20").await;
    let first = &pages[0]["processes"][0];
    assert_eq!(first["pid"], CROWD.id(249).pid);
    // Who overtakes the place that a page begins at is on none of those that follow: the document says so.
    let listed: BTreeSet<u64> = items(&pages, "processes").iter().map(|each| each["pid"].as_u64().unwrap()).collect();
    let overtook = (1..pages.len()).map(|at| u64::from(CROWD.id(249 - at).pid));
    assert!(overtook.into_iter().any(|pid| !listed.contains(&pid)));
}

#[tokio::test]
async fn a_cursor_that_was_not_given_for_the_list_is_a_problem_that_says_so() {
    let router = crowded();
    let given =
        get(&router, "/api/v1/processes?limit=5&uid=1001").await.json()["continue"].as_str().unwrap().to_owned();
    let goes_on = get(&router, &format!("/api/v1/processes?limit=9&uid=1001&continue={given}")).await;
    assert_eq!(goes_on.json()["processes"].as_array().unwrap().len(), 9);
    let mut tampered = given.clone();
    tampered.replace_range(2..3, if &given[2..3] == "A" { "B" } else { "A" });
    for path in [
        "/api/v1/processes?continue=".to_owned(),
        "/api/v1/processes?continue=null".to_owned(),
        "/api/v1/processes?continue=%00%ff".to_owned(),
        format!("/api/v1/processes?continue={}", "A".repeat(4000)),
        format!("/api/v1/processes?uid=1001&continue={tampered}"),
        format!("/api/v1/processes?continue={given}"),
        format!("/api/v1/processes?uid=1002&continue={given}"),
        format!("/api/v1/processes?uid=1001&order=id&continue={given}"),
        format!("/api/v1/processes?uid=1001&state=running&continue={given}"),
        format!("/api/v1/processes/summary?uid=1001&continue={given}"),
        format!("/api/v1/owners?continue={given}"),
        format!("/api/v1/verdicts?continue={given}"),
        format!("/api/v1/evictions?continue={given}"),
        format!("/api/v1/decisions?continue={given}"),
        format!("/api/v1/overrides?continue={given}"),
    ] {
        assert_problem(&get(&router, &path).await, StatusCode::BAD_REQUEST, "`continue` is");
    }
    // Another run of the service gives others.
    let again = get(&crowded(), &format!("/api/v1/processes?limit=5&uid=1001&continue={given}")).await;
    assert_problem(&again, StatusCode::BAD_REQUEST, "an earlier run of uvmd");
}

#[tokio::test]
async fn a_cursor_of_somebody_who_may_read_everything_lets_nobody_else_do_so() {
    let router = crowded();
    for (path, list, secret) in [
        ("/api/v1/verdicts", "active", "/ranges/0/begin"),
        ("/api/v1/decisions", "decisions", "/ranges/0/begin"),
        ("/api/v1/overrides", "overrides", "/override/match/range/begin"),
    ] {
        let cursor = get_as_reader(&router, path).await.json()["continue"].as_str().unwrap().to_owned();
        let path = format!("{path}?continue={cursor}");
        let seen = |answer: &Value| answer[list][0].pointer(secret).cloned();
        assert!(seen(&get_as_reader(&router, &path).await.json()).is_some(), "{path}");
        assert_eq!(seen(&get(&router, &path).await.json()), None, "{path}");
    }
}

#[tokio::test]
async fn an_override_that_is_taken_away_between_two_pages_is_no_gap() {
    let memory = Memory::with(&rules(10));
    let router = router_over(Sources { controls: Controls::new(memory.clone()), ..always(CROWD.snapshot()).into() });
    let ids = |answer: &Value| {
        let overrides = answer["overrides"].as_array().unwrap().iter();
        overrides.map(|each| each["override"]["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let first = get(&router, "/api/v1/overrides?limit=3").await.json();
    assert_eq!(ids(&first), ["rule-0", "rule-1", "rule-2"]);
    let next = format!("/api/v1/overrides?limit=3&continue={}", first["continue"].as_str().unwrap());
    memory.forget("rule-2");
    assert_eq!(ids(&get(&router, &next).await.json()), ["rule-3", "rule-4", "rule-5"]);
    let router = router_over(Sources { controls: Controls::new(memory.clone()), ..always(CROWD.snapshot()).into() });
    let first = get(&router, "/api/v1/overrides?limit=3").await.json();
    let next = format!("/api/v1/overrides?limit=3&continue={}", first["continue"].as_str().unwrap());
    memory.forget("rule-0");
    assert_eq!(ids(&get(&router, &next).await.json()), ["rule-4", "rule-5", "rule-6"]);
}

#[tokio::test]
async fn processes_can_be_narrowed_to_those_of_a_user() {
    let router = crowded();
    let pages = pages(&router, "/api/v1/processes?uid=1003&limit=10").await;
    let processes = items(&pages, "processes");
    assert_eq!(processes.len(), (0..250).filter(|at| at % 16 == 3).count());
    assert!(processes.iter().all(|process| process["uid"] == 1003));
    assert_eq!(get(&router, "/api/v1/processes?uid=7").await.json()["processes"], json!([]));
    assert_eq!(get(&router, "/api/v1/processes?uid=root").await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn a_summary_says_of_a_process_what_the_list_says_without_its_breakdowns() {
    let router = router(CROWD.snapshot());
    let whole = get(&router, "/api/v1/processes?limit=5").await.json();
    let answer = get(&router, "/api/v1/processes/summary?limit=5").await;
    let summaries = answer.json();
    assert_eq!((&whole["time"], &whole["remaining"]), (&summaries["time"], &summaries["remaining"]));
    for (whole, summary) in
        whole["processes"].as_array().unwrap().iter().zip(summaries["processes"].as_array().unwrap())
    {
        for (name, value) in summary.as_object().unwrap().iter().filter(|(name, _)| *name != "gpus") {
            assert_eq!(&whole[name], value, "{name}");
        }
        let missing = whole.as_object().unwrap().keys().filter(|name| summary.get(name.as_str()).is_none());
        for name in missing {
            let is_breakdown = ["_by_access", "_by_cause", "_by_kind"].iter().any(|end| name.ends_with(end));
            let is_distribution = whole[name]["p99"].is_u64();
            assert!(is_breakdown || is_distribution, "{name}");
        }
        let names = |gpus: &Value| {
            let gpus = gpus.as_array().unwrap().iter();
            gpus.map(|gpu| (gpu["gpu"].clone(), gpu["uuid"].clone())).collect::<Vec<_>>()
        };
        assert_eq!(names(&summary["gpus"]), names(&whole["gpus"]));
    }
}

#[tokio::test]
async fn a_page_of_large_items_is_cut_before_it_is_too_long() {
    let router = router(Crowd { processes: 300, gpus: 8 }.snapshot());
    let pages = pages(&router, "/api/v1/processes?limit=1000").await;
    assert!(pages.len() > 3, "{}", pages.len());
    assert_eq!(items(&pages, "processes").len(), 300);
    for page in pages {
        assert!(page.to_string().len() < 2 << 20);
    }
}
