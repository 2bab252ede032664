//! Main diagnosis of a process, and evictor of a verdict.

use std::{sync::Arc, time::Duration};

use api::Diagnosis;
use model::{
    Decision, Gpu, GpuKey, GpuUuid, ProcessId, Residency, Stage, Verdict, VerdictKind, Verdicts,
    verdict::{Inputs, Victim},
};
use web::{DecisionSource, Sources, VerdictSource};

use crate::{
    fakes::decision,
    support::{always, at, busy, get, router_over},
};

/// Fits together with `LIGHT`.
const PINGPONG: ProcessId = ProcessId { pid: 40, start_ticks: 140 };
const HEAVY: ProcessId = ProcessId { pid: 20, start_ticks: 120 };
const LIGHT: ProcessId = ProcessId { pid: 10, start_ticks: 110 };
const GPU: GpuKey = GpuKey::Known(GpuUuid([0xab; 16]));
const OTHER_GPU: GpuKey = GpuKey::Known(GpuUuid([0xcd; 16]));
const WINDOW: Duration = Duration::from_secs(1);

/// A node where HEAVY evicts memory of LIGHT.
struct Node {
    size_bytes: Option<u64>,
    managed_bytes: Option<u64>,
    /// Managed bytes of other processes, if known.
    others: Vec<(ProcessId, Option<u64>)>,
    verdicts: Vec<Verdict>,
    victims: Vec<Victim>,
    decisions: Vec<Decision>,
}

impl Node {
    fn new(verdicts: Vec<Verdict>, victims: Vec<Victim>) -> Self {
        Self { size_bytes: None, managed_bytes: Some(64), others: Vec::new(), verdicts, victims, decisions: Vec::new() }
    }

    async fn get<T: serde::de::DeserializeOwned>(self, path: &str) -> T {
        let Self { size_bytes, managed_bytes, others, verdicts, victims, decisions } = self;
        let mut snapshot = busy();
        snapshot.gpus.insert(GPU, Gpu { memory_bytes: size_bytes, ..Gpu::default() });
        snapshot.processes.iter_mut().find(|process| process.id == LIGHT).unwrap().managed_bytes = managed_bytes;
        for (id, bytes) in others {
            let light = snapshot.processes.iter().find(|process| process.id == LIGHT).unwrap();
            let other = model::Process { id, managed_bytes: bytes, ..light.clone() };
            match snapshot.processes.iter_mut().find(|process| process.id == id) {
                Some(known) => known.managed_bytes = other.managed_bytes,
                None => snapshot.processes.push(other),
            }
        }
        let verdicts = Arc::new(Verdicts { active: verdicts, victims, ..Verdicts::default() });
        let decisions: Arc<[Decision]> = decisions.into();
        let sources = Sources {
            verdicts: VerdictSource::new(move || Arc::clone(&verdicts)),
            decisions: DecisionSource::new(move || Arc::clone(&decisions)),
            ..always(snapshot).into()
        };
        serde_json::from_str(&get(&router_over(sources), path).await.text).unwrap()
    }

    async fn diagnosis_of(self, pid: u32) -> Option<Diagnosis> {
        self.get::<api::ProcessDetail>(&format!("/api/v1/processes/{pid}")).await.process.diagnosis
    }

    async fn evictor(self) -> Option<u32> {
        let verdicts: api::Verdicts = self.get("/api/v1/verdicts").await;
        verdicts.active[0].evictor.as_ref().map(|evictor| evictor.pid)
    }
}

fn verdict(kind: VerdictKind, evicted_bytes: u64) -> Verdict {
    Verdict {
        process: LIGHT,
        gpu: GPU,
        peer: None,
        kind,
        started_at: at(10),
        confirmed_at: at(12),
        ended_at: None,
        ranges: Vec::new(),
        window: WINDOW,
        inputs: Inputs { evicted_bytes, ..Inputs::default() },
        total: Inputs::default(),
        checks: Vec::new(),
    }
}

fn evicted_for(evictor: ProcessId, gpu: GpuKey, bytes: u64) -> Victim {
    Victim { victim: LIGHT, evictor, gpu, bytes, window: WINDOW }
}

fn thrashing(evicted_bytes: u64) -> Node {
    let victims = vec![evicted_for(HEAVY, GPU, 100)];
    Node::new(vec![verdict(VerdictKind::CapacityThrash, evicted_bytes)], victims)
}

#[tokio::test]
async fn a_process_that_would_fit_into_the_gpu_alone_is_a_victim() {
    let fits = Node { size_bytes: Some(64), ..thrashing(10_000) };
    assert_eq!(fits.evictor().await, Some(20));
    let exceeds = Node { size_bytes: Some(63), ..thrashing(100) };
    assert_eq!(exceeds.evictor().await, None);
}

/// 64 bytes of `LIGHT`, 30 of `PINGPONG` and 100 of `HEAVY`, on a GPU of 96. In the window,
/// `for_pingpong` and `for_heavy` bytes of `LIGHT` were evicted, and `PINGPONG` lost some to `HEAVY`.
fn three_tenants(for_pingpong: u64, for_heavy: u64) -> Node {
    let lost_by_pingpong = Victim { victim: PINGPONG, ..evicted_for(HEAVY, GPU, 1) };
    let mut victims =
        vec![evicted_for(PINGPONG, GPU, for_pingpong), evicted_for(HEAVY, GPU, for_heavy), lost_by_pingpong];
    victims.retain(|victim| victim.bytes > 0);
    let verdict = verdict(VerdictKind::CapacityThrash, 1000);
    Node {
        size_bytes: Some(96),
        others: vec![(PINGPONG, Some(30)), (HEAVY, Some(100))],
        ..Node::new(vec![verdict], victims)
    }
}

#[tokio::test]
async fn the_evictor_is_the_process_without_which_all_would_fit() {
    assert_eq!(three_tenants(900, 100).evictor().await, Some(HEAVY.pid));
    assert_eq!(three_tenants(100, 900).evictor().await, Some(HEAVY.pid));
    let diagnosis = three_tenants(1000, 0).diagnosis_of(10).await.unwrap();
    assert_eq!(diagnosis.description, "without 20 heavy, it would fit into the GPU");
}

#[tokio::test]
async fn a_process_that_evicts_its_own_memory_alone_in_a_window_is_the_cause_in_that_too() {
    let mut node = three_tenants(900, 0);
    node.victims.retain(|eviction| eviction.evictor != HEAVY);
    let inputs = Inputs { induced_eviction_bytes: 5000, ..Inputs::default() };
    node.verdicts.push(Verdict { process: HEAVY, inputs, ..verdict(VerdictKind::CapacityThrash, 5000) });
    assert_eq!(node.diagnosis_of(10).await.unwrap().label, "victim of 20");
}

#[tokio::test]
async fn a_process_that_does_not_fit_alone_is_no_victim_of_others_that_evict_each_other() {
    let others = [PINGPONG, HEAVY].map(|process| Victim { victim: PINGPONG, ..evicted_for(process, GPU, 1) });
    let node = Node { size_bytes: Some(63), others: vec![(PINGPONG, Some(1)), (HEAVY, Some(1))], ..thrashing(10_000) };
    assert_eq!(Node { victims: others.to_vec(), ..node }.evictor().await, None);
}

#[tokio::test]
async fn where_all_fit_no_process_is_too_much() {
    // The driver evicted all the same: the process for which most was evicted is named.
    let fits = Node { size_bytes: Some(200), ..three_tenants(900, 100) };
    assert_eq!(fits.evictor().await, Some(PINGPONG.pid));
}

#[tokio::test]
async fn where_no_single_process_is_too_much_most_evicted_bytes_decide() {
    let two_too_many = || Node { size_bytes: Some(64), ..three_tenants(900, 100) };
    assert_eq!(two_too_many().evictor().await, Some(PINGPONG.pid));
    let unknown = Node { others: vec![(PINGPONG, None), (HEAVY, Some(100))], ..three_tenants(900, 100) };
    assert_eq!(unknown.evictor().await, Some(PINGPONG.pid));
}

#[tokio::test]
async fn where_the_capacity_is_unknown_half_of_the_evicted_bytes_decide() {
    assert_eq!(thrashing(200).evictor().await, Some(20));
    assert_eq!(thrashing(201).evictor().await, None);
    let mapped_bytes_unknown = Node { size_bytes: Some(64), managed_bytes: None, ..thrashing(201) };
    assert_eq!(mapped_bytes_unknown.evictor().await, None);
}

#[tokio::test]
async fn evictions_at_another_gpu_do_not_cause_a_verdict_at_this_one() {
    let victims = vec![evicted_for(HEAVY, OTHER_GPU, 1000)];
    let node = || Node::new(vec![verdict(VerdictKind::CapacityThrash, 100)], victims.clone());
    assert_eq!(node().evictor().await, None);
    assert_eq!(node().diagnosis_of(10).await.unwrap().kind, "verdict");
}

#[tokio::test]
async fn a_process_is_never_its_own_evictor() {
    let victims = vec![evicted_for(LIGHT, GPU, 1000)];
    assert_eq!(Node::new(vec![verdict(VerdictKind::CapacityThrash, 100)], victims).evictor().await, None);
}

#[tokio::test]
async fn only_capacity_thrash_has_an_evictor() {
    let victims = vec![evicted_for(HEAVY, GPU, 1000)];
    for kind in VerdictKind::ALL.into_iter().filter(|kind| *kind != VerdictKind::CapacityThrash) {
        let node = || Node::new(vec![verdict(kind, 1000)], victims.clone());
        assert_eq!(node().evictor().await, None, "{kind:?}");
        let diagnosis = node().diagnosis_of(10).await.unwrap();
        assert_eq!((diagnosis.kind.as_str(), diagnosis.evictor), ("verdict", None), "{kind:?}");
    }
}

#[tokio::test]
async fn a_victim_is_diagnosed_with_its_evictor_and_its_verdict() {
    let diagnosis = thrashing(100).diagnosis_of(10).await.unwrap();
    let (evictor, verdict) = (diagnosis.evictor.unwrap(), diagnosis.verdict.unwrap());
    assert_eq!((diagnosis.kind.as_str(), evictor.pid, evictor.name.as_str()), ("victim", 20, "heavy"));
    assert_eq!((evictor.bytes_per_second, verdict.kind.as_str(), verdict.thrashing), (100, "capacity_thrash", true));
}

#[tokio::test]
async fn a_process_without_a_verdict_is_a_victim_of_its_largest_evictor() {
    let others = [evicted_for(ProcessId { pid: 7, start_ticks: 1 }, GPU, 99), evicted_for(HEAVY, OTHER_GPU, 100)];
    let diagnosis = Node::new(Vec::new(), others.to_vec()).diagnosis_of(10).await.unwrap();
    assert_eq!((diagnosis.kind.as_str(), diagnosis.evictor.unwrap().pid), ("victim", 20));
    assert_eq!(diagnosis.verdict, None);
}

#[tokio::test]
async fn the_worst_verdict_is_the_diagnosis_without_an_evictor() {
    let worst = verdict(VerdictKind::PingPong, 0);
    let verdicts = vec![worst, verdict(VerdictKind::FirstTouchStorm, 0)];
    let diagnosis = Node::new(verdicts, Vec::new()).diagnosis_of(10).await.unwrap();
    assert_eq!((diagnosis.kind.as_str(), diagnosis.verdict.unwrap().kind.as_str()), ("verdict", "ping_pong"));
    assert_eq!(Node::new(Vec::new(), Vec::new()).diagnosis_of(10).await, None);
}

#[tokio::test]
async fn a_decision_in_effect_precedes_a_verdict_and_one_in_shadow_does_not() {
    let of_heavy = || Verdict { process: HEAVY, ..verdict(VerdictKind::CapacityThrash, 100) };
    let with = |stage| Node { decisions: vec![decision(1, stage)], ..Node::new(vec![of_heavy()], Vec::new()) };
    for stage in [Stage::Trial, Stage::Confirmed] {
        let diagnosis = with(stage).diagnosis_of(20).await.unwrap();
        assert_eq!((diagnosis.kind.as_str(), diagnosis.decision.unwrap().id), ("decision", 1));
    }
    assert_eq!(with(Stage::Shadow(String::new())).diagnosis_of(20).await.unwrap().kind, "verdict");
}

#[tokio::test]
async fn the_capacity_of_a_gpu_is_its_size_without_unmanaged_memory() {
    let capacity = |size_bytes, used_bytes, resident_bytes: Option<u64>| async move {
        let mut snapshot = busy();
        snapshot.gpus.clear();
        let gpu = Gpu { memory_bytes: size_bytes, memory_used_bytes: used_bytes, ..Gpu::default() };
        snapshot.gpus.insert(GPU, gpu);
        for process in &mut snapshot.processes {
            process.residency.clear();
        }
        let light = snapshot.processes.iter_mut().find(|process| process.id == LIGHT).unwrap();
        match resident_bytes {
            Some(bytes) => drop(light.residency.insert(GPU, Residency::exactly(bytes))),
            None => snapshot.source.block_records.is_off = true,
        }
        let response = get(&router_over(always(snapshot)), "/api/v1/gpus").await;
        let gpus: api::Gpus = serde_json::from_str(&response.text).unwrap();
        let uuid = GPU.uuid().unwrap().to_string();
        gpus.gpus.iter().find(|gpu| gpu.gpu.id.uuid.as_ref() == Some(&uuid)).unwrap().managed_capacity_bytes
    };
    assert_eq!(capacity(Some(100), Some(70), Some(50)).await, Some(80), "20 of the bytes in use are unmanaged");
    assert_eq!(capacity(Some(100), None, Some(50)).await, Some(100), "unmanaged memory is unknown");
    assert_eq!(capacity(None, None, Some(50)).await, Some(50), "the size is unknown");
    assert_eq!(capacity(Some(100), Some(70), None).await, None, "managed and unmanaged cannot be distinguished");
}
