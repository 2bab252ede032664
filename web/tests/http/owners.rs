//! One owner: `/api/v1/owners/{kind}/{id}` and its history.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use api::OwnerDetail;
use axum::http::StatusCode;
use model::{Counters, HistoryOf, OwnerKey, OwnerTotals};
use web::{Source, Sources};

use crate::{
    populated,
    support::{always, assert_problem, at, busy, get, router_over},
};

#[tokio::test]
async fn an_owner_has_its_processes_verdicts_and_evictions() {
    let response = get(&populated::router(), "/api/v1/owners/pod/7c1f").await;
    let owner: OwnerDetail = serde_json::from_str(&response.text).unwrap();
    assert_eq!((owner.totals.kind.as_str(), owner.totals.id.as_str(), owner.totals.processes), ("pod", "7c1f", 1));
    let [member] = &owner.members[..] else { panic!("{owner:?}") };
    assert_eq!((member.pid, member.start_ticks, member.state.as_str()), (20, 120, "running"));
    let verdicts: Vec<_> = owner.verdicts.iter().map(|each| (each.pid, each.ended_at.is_some())).collect();
    assert_eq!(verdicts, [(20, false), (20, true)], "active ones first");
    let bytes = |evictions: &Option<Vec<api::OwnerEviction>>| {
        evictions.iter().flatten().map(|each| (each.kind.clone(), each.bytes)).collect::<Vec<_>>()
    };
    let other = || Some("other".to_owned());
    assert_eq!(bytes(&owner.evictions_suffered), [(other(), 8192), (None, 4096)], "most bytes first");
    assert_eq!(bytes(&owner.evictions_inflicted), [(other(), 2048)]);
}

#[tokio::test]
async fn an_unlisted_owner_is_a_problem() {
    let router = populated::router();
    for path in ["pod/7c1", "job/7c1f", "unit/x.scope", "pod/7c1f/history?seconds=1", "job/1/history"] {
        let response = get(&router, &format!("/api/v1/owners/{path}")).await;
        let is_known = path.starts_with("pod/7c1f/");
        assert_eq!(response.status == StatusCode::OK, is_known, "{path}: {}", response.text);
    }
    for path in ["node/7", "other/", "other/x"] {
        assert_problem(&get(&router, &format!("/api/v1/owners/{path}")).await, StatusCode::NOT_FOUND, path);
    }
}

#[tokio::test]
async fn the_history_of_an_owner_is_requested_by_its_full_id() {
    let unit = OwnerKey::Unit("user@1000.service/train.service".to_owned());
    let mut snapshot = busy();
    let totals = OwnerTotals {
        host: Counters::default(),
        gpus: BTreeMap::default(),
        reuse: BTreeMap::default(),
        processes: 0,
        last_active_at: at(0),
    };
    snapshot.owners.insert(unit.clone(), totals);
    let requests = Arc::new(Mutex::new(Vec::new()));
    let recorded = Arc::clone(&requests);
    let history = Source::new(move |request: model::HistoryRequest| {
        recorded.lock().unwrap().push(request.of);
        std::future::ready(Some(None))
    });
    let router = router_over(Sources { history, ..always(snapshot).into() });
    let path = "/api/v1/owners/unit/user@1000.service%2Ftrain.service";
    assert_eq!(get(&router, path).await.status, StatusCode::OK);
    assert_problem(&get(&router, &format!("{path}/history")).await, StatusCode::NOT_FOUND, "there is no history");
    assert_eq!(*requests.lock().unwrap(), [HistoryOf::Owner(unit)]);
}
