//! Router over a snapshot of a test, and its responses.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{HeaderMap, Request, StatusCode},
};
use model::{
    Access, Block, Cause, CopiedBytes, Counters, DriverInfo, Gpu, GpuKey, GpuUuid, ProbeStatus, Process, ProcessId,
    Residency, Snapshot, SourceState, SourceStatus,
};
use serde_json::Value;
use tower::ServiceExt;
use web::{Grant, Hosts, Node, Peer, ProblemKind, Snapshots, Sources};

pub(crate) const LOOPBACK: &str = "127.0.0.1:9477";

pub(crate) struct Response {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error} in {}", self.text))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

pub(crate) fn router(snapshot: Snapshot) -> Router {
    router_on(LOOPBACK, snapshot)
}

/// Router for a listener on this address.
pub(crate) fn router_on(listen: &str, snapshot: Snapshot) -> Router {
    web::router(node(), listen.parse().unwrap(), always(snapshot))
}

/// Source of one snapshot for all requests.
pub(crate) fn always(snapshot: Snapshot) -> Snapshots {
    let snapshot = Arc::new(snapshot);
    Snapshots::new(move || std::future::ready(Some(Arc::clone(&snapshot))))
}

pub(crate) fn router_over(sources: impl Into<Sources>) -> Router {
    router_of(node(), sources)
}

pub(crate) fn router_of(node: Node, sources: impl Into<Sources>) -> Router {
    web::router(node, LOOPBACK.parse().unwrap(), sources)
}

pub(crate) fn node() -> Node {
    let hosts = Hosts::OfMachine(vec!["gpu-17".to_owned()]);
    Node { version: "1.2.3", commit: "0123456789ab", hostname: "gpu-17".to_owned(), hosts, ..Node::default() }
}

/// Text of `/metrics` without `hostname`.
pub(crate) async fn metrics(router: &Router) -> String {
    nodes::exposition::without_hostname(&get(router, "/metrics").await.text)
}

pub(crate) async fn get(router: &Router, path: &str) -> Response {
    send(router, Request::get(path).header("Host", LOOPBACK).body(Body::empty()).unwrap()).await
}

/// Requests a path as a peer with read permission.
pub(crate) async fn get_as_reader(router: &Router, path: &str) -> Response {
    get_as(router, Peer::Local { uid: 7, pid: None, grant: Some(Grant::Read) }, path).await
}

pub(crate) async fn get_as(router: &Router, peer: Peer, path: &str) -> Response {
    let request = Request::get(path).header("Host", LOOPBACK).extension(peer);
    send(router, request.body(Body::empty()).unwrap()).await
}

pub(crate) fn assert_problem(response: &Response, status: StatusCode, detail: &str) {
    assert_eq!(response.status, status, "{}", response.text);
    assert_eq!(response.header("content-type"), "application/problem+json");
    let body = response.json();
    assert_eq!(body["status"], status.as_u16());
    let kind = ProblemKind::ALL.iter().find(|kind| body["type"] == kind.uri()).unwrap();
    assert_eq!((&body["title"], kind.status()), (&Value::from(kind.title()), status));
    assert!(body["detail"].as_str().unwrap().contains(detail), "{body}");
}

pub(crate) async fn send(router: &Router, request: Request<Body>) -> Response {
    let response = router.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    Response { status: parts.status, headers: parts.headers, text: String::from_utf8(body.to_vec()).unwrap() }
}

pub(crate) fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + seconds)
}

fn in_state(state: SourceState) -> Snapshot {
    let dropped_events = BTreeMap::from([("map_full", 0), ("unknown_va_space", 0)]);
    Snapshot::empty(at(60), SourceStatus { dropped_events, ..SourceStatus::new(state) })
}

pub(crate) fn waiting() -> Snapshot {
    in_state(SourceState::Waiting {
        missing: vec!["no driver: load it".to_owned(), "no kprobes: boot with them".to_owned()],
    })
}

pub(crate) fn refused() -> Snapshot {
    in_state(SourceState::Refused { reason: "driver 999.1 is not known: update".to_owned() })
}

pub(crate) fn counting() -> Snapshot {
    let mut snapshot = in_state(SourceState::Counting { since: at(0) });
    snapshot.source.driver = Some(DriverInfo {
        version: "550.163.01".to_owned(),
        layout: Some("550-555".to_owned()),
        attachment: Some("kprobe"),
        ..DriverInfo::default()
    });
    snapshot
}

/// Three processes on two GPUs, one without a known UUID. One process has exited; another one is
/// forgotten, and is in the totals only.
pub(crate) fn busy() -> Snapshot {
    let mut snapshot = counting();
    snapshot.source.probes = vec![
        ProbeStatus {
            name: "uvm_perf_event_notify".to_owned(),
            hits: 1234,
            run_time: Some(Duration::from_millis(1500)),
            missing: None,
        },
        ProbeStatus { name: "uvm_va_space_destroy".to_owned(), hits: 2, run_time: None, missing: None },
    ];
    snapshot.source.dropped_events.insert("map_full", 5);
    let uuid = GpuUuid([0x9a, 0x31, 0x77, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    let (known, unknown) = (GpuKey::Known(uuid), GpuKey::Unknown(2));
    snapshot
        .gpus
        .insert(known, Gpu { id: Some(1), index: Some(0), name: Some("NVIDIA H200".to_owned()), ..Gpu::default() });
    snapshot.gpus.insert(unknown, Gpu { id: Some(2), name: None, ..Gpu::default() });

    let mut light = Counters::default();
    light.fault_entries[Access::Read] = 10;
    light.fault_instances[Access::Read] = 15;
    let mut heavy = Counters::default();
    heavy.fault_entries[Access::Write] = 300;
    heavy.fault_instances[Access::Write] = 450;
    heavy.bytes_htod[Cause::TreePrefetch] = 65536;
    heavy.bytes_dtoh[Cause::Eviction] = 8192;
    heavy.bytes_dtoh[Cause::Fault] = 4096;
    let host = Counters { cpu_read_faults: 3, cpu_write_faults: 4, ..Counters::default() };
    snapshot.processes = vec![
        process(30, "gone", Some(at(50)), BTreeMap::from([(known, heavy.clone())])),
        process(10, "light", None, BTreeMap::from([(known, light.clone())])),
        Process {
            host: host.clone(),
            ..process(20, "heavy", None, BTreeMap::from([(known, heavy.clone()), (unknown, light.clone())]))
        },
    ];

    let mut forgotten = heavy.clone();
    forgotten.fault_entries[Access::AtomicWeak] = 7;
    snapshot.gpu_totals =
        BTreeMap::from([(known, [heavy.clone(), light.clone(), heavy, forgotten].iter().sum()), (unknown, light)]);
    snapshot.host_totals = host;
    snapshot
}

pub(crate) fn process(
    pid: u32,
    name: &str,
    exited_at: Option<SystemTime>,
    gpus: BTreeMap<GpuKey, Counters>,
) -> Process {
    Process {
        id: ProcessId { pid, start_ticks: 100 + u64::from(pid) },
        started_at: Some(at(1)),
        name: name.to_owned(),
        uid: 1000,
        user: Some("alice".to_owned()),
        cgroup: Some("/user.slice".into()),
        exited_at,
        host: Counters::default(),
        gpus,
        managed_bytes: Some(64 << 20),
        ..Process::new(ProcessId { pid, start_ticks: 0 }, name)
    }
}

pub(crate) fn block(address: u64, gpu: Option<GpuKey>) -> Block {
    Block {
        address,
        gpu,
        fault_entries: 100,
        cpu_faults: 1,
        bytes_htod: 2 << 20,
        bytes_dtoh: 1 << 20,
        bytes_dtod: 0,
        populated_bytes: 4096,
        evicted_bytes: 1 << 20,
        evictions: 1,
        htod_by_cause: CopiedBytes { fault: 1 << 20, tree_prefetch: 1 << 20, ..CopiedBytes::default() },
        dtoh_by_cause: CopiedBytes { eviction: 1 << 20, ..CopiedBytes::default() },
        refetched_bytes: 4096,
        cpu_reclaimed_bytes: 8192,
        bounces: 3,
        idle_returns: 0,
        interrupted_absences: 0,
        resident: Residency { bytes: 65536, min_bytes: 4096, max_bytes: 131_072 },
        last_seen_at: at(59),
    }
}
