//! A service with a value in every field of every endpoint.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use axum::Router;
use model::{
    Blocks, CheckedFigure, CodeModule, CodePlace, ComparisonResult, Counters, Crosschecks, EvictionCause, EvictionPair,
    Gpu, GpuSource, HeatCell, HeatMap, HeatRange, History, NamesSource, Owner, OwnerEvictions, OwnerKey, OwnerNames,
    OwnerTotals, Party, Pattern, PatternKind, PodNames, Process, ProcessId, Range, RangeCounts, Ranges, Residency,
    Reuse, Sample, Site, SiteCounts, Sites, Snapshot, Stage, Usage, Verdict, VerdictKind, Verdicts,
    owner::{Container, Job, Pod},
    verdict::{Check, Inputs, Involved, Victim},
};
use web::{Control, Controls, DecisionSource, Requester, Source, Sources, VerdictSource};

use crate::fakes::{Store, decision};
use crate::ops;
use crate::support::{always, at, block, busy, router_over};

const HEAVY: ProcessId = ProcessId { pid: 20, start_ticks: 120 };
const LIGHT: ProcessId = ProcessId { pid: 10, start_ticks: 110 };
const PATTERN: Pattern = Pattern { kind: PatternKind::Strided { stride_bytes: 4096 }, confidence: 0.5, steps: 9 };
const WINDOW: Duration = Duration::from_secs(1);

/// A site in a function, and one in a file without symbols.
fn sites() -> Sites {
    let site = |pc, symbol| Site {
        pc,
        counts: SiteCounts { faults: 12, bytes_dtoh: 786_432 },
        place: Some(CodePlace::Module(CodeModule {
            path: "/opt/train".into(),
            offset: 0x1234,
            elf_address: Some(0x2234),
            symbol,
        })),
    };
    let busiest =
        vec![site(0x5500_0000_1234, Ok(("step".to_owned(), 20))), site(0x5500_0000_2234, Err("no symbols".to_owned()))];
    Sites { busiest, known: 2, unattributed: SiteCounts { faults: 1, bytes_dtoh: 0 } }
}

pub(crate) fn router() -> Router {
    let heat = Source::new(|_| {
        let cells = vec![HeatCell { idle_ns: Some(1), ..HeatCell::default() }, HeatCell::default()];
        let range = HeatRange { begin: 0, end: 4 << 20, cell_bytes: 2 << 20, cells };
        std::future::ready(Some(Some(HeatMap { ranges: vec![range], ranges_omitted: 0 })))
    });
    let history = Source::new(|_| {
        let samples = vec![None, Some(Sample::default())];
        std::future::ready(Some(Some(History { begin: at(0), interval: WINDOW, samples })))
    });
    let snapshot = snapshot();
    let verdicts = Arc::new(verdicts(&snapshot));
    let verdict_source = VerdictSource::new(move || Arc::clone(&verdicts));
    let decisions: Arc<[_]> =
        [decision(2, Stage::Confirmed), decision(1, Stage::RolledBack("no better".to_owned()))].into();
    let decision_source = DecisionSource::new(move || Arc::clone(&decisions));
    let store = Store::new();
    store.switch_off(&Requester::default()).unwrap();
    let controls = Controls::new(store);
    router_over(Sources {
        heat,
        history,
        ops: Source::new(|_| std::future::ready(Some(Ok(ops::recording())))),
        traces: Source::new(|_| std::future::ready(Some(Ok(Ok(ops::TRACE.into()))))),
        verdicts: verdict_source,
        decisions: decision_source,
        controls,
        ..always(snapshot).into()
    })
}

fn snapshot() -> Snapshot {
    let mut snapshot = busy();
    let gpu = *snapshot.gpus.keys().next().unwrap();
    let heavy = snapshot.processes.iter_mut().find(|process| process.id == HEAVY).unwrap();
    let range = Range {
        begin: 0x7f2a_4000_0000,
        end: 0x7f2a_4200_0000,
        mapped: true,
        counts: RangeCounts::default(),
        residency: Residency::exactly(4096),
        pattern: PATTERN,
    };
    *heavy = Process {
        command_line: Some("python train.py".to_owned()),
        blocks: Blocks { busiest: vec![block(range.begin, Some(gpu))], known: 1, ..Blocks::default() },
        owner: Owner {
            container: Some(Container { runtime: Some("podman"), id: "c0ffee".to_owned() }),
            pod: Some(Pod { uid: "7c1f".to_owned() }),
            job: Some(Job { id: "7".to_owned(), step: Some("batch".to_owned()) }),
            unit: Some("x.scope".to_owned()),
        },
        ranges: Ranges { busiest: vec![range], known: 1, mappings: 1, forgotten: 0 },
        residency: BTreeMap::from([(gpu, Residency::exactly(4096))]),
        reuse: BTreeMap::from([(gpu, Reuse { fetched_bytes: 4096, ..Reuse::default() })]),
        sites: sites(),
        ..heavy.clone()
    };
    snapshot.source.crosschecks = Some(Crosschecks {
        checks: 2,
        comparisons: BTreeMap::from([((CheckedFigure::CpuFaults, ComparisonResult::Agreed), 18)]),
        last_process: Some(HEAVY),
    });
    let card = snapshot.gpus.get_mut(&gpu).unwrap();
    *card = Gpu {
        index: Some(0),
        pci_address: Some("0000:17:00.0".to_owned()),
        memory_bytes: Some(64 << 20),
        memory_used_bytes: Some(60 << 20),
        link_bytes_per_second: Some(1024),
        source: Some(GpuSource::Procfs),
        ..card.clone()
    };
    let counters = snapshot.gpu_totals[&gpu].clone();
    let totals = OwnerTotals {
        host: Counters::default(),
        gpus: BTreeMap::from([(gpu, counters)]),
        reuse: BTreeMap::from([(gpu, Reuse::default())]),
        processes: 1,
        last_active_at: at(5),
    };
    snapshot.owners = BTreeMap::from([(OwnerKey::Pod("7c1f".to_owned()), totals)]);
    snapshot.owner_names = names();
    let pair =
        |victim, evictor| EvictionPair { gpu, victim, evictor, cause: EvictionCause::Tool, evictions: 1, bytes: 2 };
    snapshot.evictions =
        vec![pair(Party::Process(HEAVY), Party::Unknown), pair(Party::Forgotten, Party::Process(LIGHT))];
    let pod = || Some(OwnerKey::Pod("7c1f".to_owned()));
    let between = |victim, evictor, bytes| OwnerEvictions {
        gpu,
        victim,
        evictor,
        cause: EvictionCause::Fault,
        evictions: 1,
        bytes,
    };
    snapshot.owner_evictions = vec![
        between(pod(), None, 4096),
        between(pod(), Some(OwnerKey::Other), 8192),
        between(Some(OwnerKey::Other), pod(), 2048),
    ];
    snapshot.owner_evictions.push(OwnerEvictions {
        gpu,
        victim: Some(OwnerKey::Other),
        evictor: None,
        cause: EvictionCause::DeviceAllocation,
        evictions: 1,
        bytes: 2,
    });
    snapshot.reuse_totals = BTreeMap::from([(gpu, Reuse::default())]);
    snapshot
}

fn verdicts(snapshot: &Snapshot) -> Verdicts {
    let gpu = *snapshot.gpus.keys().next().unwrap();
    let verdict = Verdict {
        process: HEAVY,
        gpu,
        peer: None,
        kind: VerdictKind::CapacityThrash,
        started_at: at(10),
        confirmed_at: at(11),
        ended_at: None,
        ranges: vec![Involved { begin: 0, end: 4 << 20, pattern: PATTERN, traffic_ratio: 0.5, refetch_ratio: 1.0 }],
        window: WINDOW,
        inputs: Inputs::default(),
        total: Inputs::default(),
        checks: vec![Check { description: "share".to_owned(), name: "share", value: 0.9, threshold: 0.5, met: true }],
    };
    let mut usage = Usage::default();
    usage.observe(snapshot);
    usage.add_verdict_time(OwnerKey::Pod("7c1f".to_owned()), Some("batch"), verdict.kind, Duration::from_secs(8));
    let process = snapshot.processes.iter().find(|process| process.id == HEAVY).unwrap();
    usage.judge(&verdict, process, snapshot);
    Verdicts {
        usage: Arc::new(usage),
        ended: vec![Verdict { ended_at: Some(at(12)), ..verdict.clone() }],
        active: vec![verdict],
        victims: vec![
            Victim { victim: LIGHT, evictor: HEAVY, gpu, bytes: 4096, window: WINDOW },
            Victim { victim: HEAVY, evictor: LIGHT, gpu, bytes: 4096, window: WINDOW },
        ],
        ..Verdicts::default()
    }
}

/// Names of the pod.
pub(crate) fn names() -> Arc<OwnerNames> {
    let text = str::to_owned;
    let pod = PodNames {
        namespace: text("ml"),
        name: text("llm-0"),
        workload: Some(text("StatefulSet/llm")),
        containers: BTreeMap::from([(text("c0ffee"), text("train"))]),
        only_container: Some(text("train")),
        labels: BTreeMap::from([(text("team"), text("nlp"))]),
    };
    let source = Some(NamesSource { is_current: true, contacted_at: Some(at(5)) });
    Arc::new(OwnerNames { pods: HashMap::from([(text("7c1f"), Arc::new(pod))]), source })
}
