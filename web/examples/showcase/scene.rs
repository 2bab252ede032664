//! A node with two GPUs. On one, a process thrashes and evicts another's memory; on the other, all
//! is well except for a process that streams.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, SystemTime},
};

use model::{
    Blocks, Counters, EvictionCause, EvictionPair, Gpu, GpuKey, GpuSource, GpuUuid, NamesSource, Owner, OwnerNames,
    Party, PodNames, Process, ProcessId, Residency, Reuse, Snapshot, SourceState, SourceStatus, Usage, VerdictKind,
    Verdicts,
    owner::{Container, Job, Pod},
    usage,
    verdict::{Inputs, Involved, Verdict, Victim},
};
use policy::decision;

use crate::{
    counts,
    memory::{self, GIB},
    sites,
};

/// GPUs of the node, which the driver numbers from 1.
pub(crate) const CARDS: [GpuKey; 2] = [card(0x9a), card(0x4c)];
const CARD_BYTES: u64 = 141 * GIB;
/// Seconds of activity before the showcase began.
const BEFORE: f64 = 252.0;

const fn card(first: u8) -> GpuKey {
    GpuKey::Known(GpuUuid([
        first, 0x31, 0x77, 0x02, 0xd4, 0x3c, 0x8e, 0x11, 0xb0, 0x55, 0x6f, 0x20, 0x1c, 0xaa, 0x94, 0x01,
    ]))
}

/// Names of one of the pods: another program reads them from the cluster, and may not know all.
fn names() -> Arc<OwnerNames> {
    let pod = PodNames {
        namespace: "batch".to_owned(),
        name: "cudf-worker-3".to_owned(),
        workload: Some("StatefulSet/cudf-worker".to_owned()),
        only_container: Some("worker".to_owned()),
        ..PodNames::default()
    };
    let pods = HashMap::from([("e00c7a51-93aa-4b50-8f83-0d4a7f2f9b17".to_owned(), Arc::new(pod))]);
    Arc::new(OwnerNames { pods, source: Some(NamesSource { is_current: true, contacted_at: None }) })
}

/// Work of a process.
struct Work {
    pid: u32,
    name: &'static str,
    command_line: &'static str,
    user: Option<&'static str>,
    owner: Owner,
    card: usize,
    /// Faults per second, and the amplitude of their variation as a share.
    faults: f64,
    swing: f64,
    managed_gib: u64,
    resident_gib: u64,
    /// Share of fetched bytes that had been evicted before.
    refetched: f64,
    exited: bool,
}

/// Processes of the scene.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cast {
    Usual,
    /// As many processes as a busy node has.
    Crowd,
    /// Markup wherever a program or its user chooses a text.
    Hostile,
}

/// Processes of a crowd, beside the usual ones.
const CROWD: u32 = 494;
const CROWD_PODS: u32 = 25;

/// Markup that would set the attribute `data-attacked` of the page.
pub(crate) const MARKUP: &str = "\"'><img src=x onerror=\"document.body.dataset.attacked=1\">";

fn works(cast: Cast) -> Vec<Work> {
    let mut works: Vec<_> = usual().into();
    match cast {
        Cast::Usual => {}
        Cast::Crowd => works.extend((0..CROWD).map(worker)),
        Cast::Hostile => {
            for work in &mut works {
                (work.name, work.command_line, work.user) = (MARKUP, MARKUP, Some(MARKUP));
                work.owner = Owner { unit: Some(MARKUP.to_owned()), ..Owner::default() };
            }
        }
    }
    works
}

/// Process of a crowd.
fn worker(at: u32) -> Work {
    let pod = Pod { uid: format!("{:08x}-93aa-4b50-8f83-0d4a7f2f9b17", 0xabc0_0000 + at % CROWD_PODS) };
    Work {
        pid: 60_000 + at,
        name: "worker",
        command_line: "python -m worker",
        user: Some("ml"),
        owner: Owner { pod: Some(pod), ..Owner::default() },
        card: at as usize % CARDS.len(),
        faults: f64::from(at * 37 % CROWD),
        swing: 0.9,
        managed_gib: 1,
        resident_gib: 0,
        refetched: 0.0,
        exited: false,
    }
}

fn usual() -> [Work; 6] {
    let pod = |uid: &str, id: &str| Owner {
        container: Some(Container { runtime: Some("containerd"), id: id.repeat(16) }),
        pod: Some(Pod { uid: uid.to_owned() }),
        unit: Some(format!("cri-containerd-{}.scope", id.repeat(16))),
        job: None,
    };
    let job = Job { id: "4711".to_owned(), step: Some("0".to_owned()) };
    let idle = Work {
        pid: 39_870,
        name: "jupyter-lab",
        command_line: "/opt/conda/bin/python -m jupyterlab --no-browser",
        user: Some("alice"),
        owner: Owner { unit: Some("user@1000.service/jupyter.service".to_owned()), ..Owner::default() },
        card: 0,
        faults: 0.0,
        swing: 0.0,
        managed_gib: 2,
        resident_gib: 2,
        refetched: 0.0,
        exited: false,
    };
    [
        Work {
            pid: 41_207,
            name: "python",
            command_line: "python train.py --model llm-7b --batch-size 512 --managed",
            user: Some("ml"),
            owner: pod("7c1f0c0e-2f6b-4f0a-9d51-6f0f6c1a9d3e", "1f9c"),
            faults: 18_400.0,
            swing: 0.5,
            managed_gib: 187,
            resident_gib: 118,
            refetched: 0.92,
            ..idle
        },
        Work {
            pid: 40_981,
            name: "cudf-worker",
            command_line: "dask-cuda-worker --rmm-managed-memory tcp://scheduler:8786",
            user: Some("etl"),
            owner: pod("e00c7a51-93aa-4b50-8f83-0d4a7f2f9b17", "77ab"),
            faults: 2_100.0,
            swing: 0.9,
            managed_gib: 18,
            resident_gib: 11,
            refetched: 0.71,
            ..idle
        },
        Work {
            pid: 52_113,
            name: "solver",
            command_line: "./solver --in mesh.h5",
            user: None,
            owner: Owner { job: Some(job), ..Owner::default() },
            card: 1,
            faults: 5_300.0,
            swing: 0.2,
            managed_gib: 290,
            resident_gib: 133,
            refetched: 0.03,
            ..idle
        },
        Work {
            pid: 47_640,
            name: "<b>evil</b>\u{1b}[31m",
            command_line: "./evil <script>alert(1)</script> \u{202e}txt.exe",
            user: Some("mallory"),
            owner: Owner::default(),
            card: 1,
            faults: 12.0,
            swing: 0.1,
            managed_gib: 1,
            resident_gib: 1,
            ..idle
        },
        Work {
            pid: 38_002,
            name: "nbody",
            user: Some("carol"),
            owner: Owner::default(),
            card: 1,
            faults: 5_000.0,
            managed_gib: 0,
            resident_gib: 0,
            exited: true,
            ..idle
        },
        idle,
    ]
}

/// State of the node at one moment.
pub(crate) struct Scene {
    now: SystemTime,
    begin: SystemTime,
    seconds: f64,
    has_verdicts: bool,
    cast: Cast,
}

impl Scene {
    /// State a number of seconds after the showcase began.
    pub(crate) fn at(seconds: f64, has_verdicts: bool, cast: Cast) -> Self {
        let (now, seconds) = (SystemTime::now(), seconds + BEFORE);
        Self { now, begin: now - Duration::from_secs_f64(seconds), seconds, has_verdicts, cast }
    }

    /// Adds processes, GPUs and evictions.
    pub(crate) fn fill(&self, snapshot: &mut Snapshot) {
        for work in works(self.cast) {
            let faults = self.faults(&work);
            let (counters, host) = counts::counters(faults, self.seconds);
            let gpu = CARDS[work.card];
            *snapshot.gpu_totals.entry(gpu).or_default() += &counters;
            snapshot.host_totals += &host;
            snapshot.processes.push(self.process(work, faults, &counters, host));
        }
        for (at, key) in (0_u32..).zip(CARDS) {
            let resident: u64 = snapshot
                .processes
                .iter()
                .filter_map(|process| process.residency.get(&key))
                .map(|each| each.bytes)
                .sum();
            let card = Gpu {
                id: Some(at + 1),

                name: Some("NVIDIA H200".to_owned()),
                index: Some(at),
                pci_address: Some(format!("0000:{:02x}:00.0", 0x17 + at * 0x20)),
                memory_bytes: Some(CARD_BYTES),
                memory_used_bytes: Some(resident + u64::from(8 - at * 3) * GIB),
                link_bytes_per_second: Some(63_015_384_608),
                source: Some(GpuSource::Nvml),
            };
            snapshot.gpus.insert(key, card);
        }
        snapshot.evictions = self.evictions();
        snapshot.owner_names = names();
        snapshot.owners = nodes::owners(&snapshot.processes, self.now);
    }

    /// Faults so far: the integral of faults * (1 + swing * sin(t / 4)), which is monotonic.
    fn faults(&self, work: &Work) -> f64 {
        let busy = if work.exited { BEFORE } else { self.seconds };
        work.faults * (busy - work.swing * 4.0 * (busy / 4.0).cos() + 4.0 * work.swing)
    }

    fn process(&self, work: Work, faults: f64, counters: &Counters, mut host: Counters) -> Process {
        // Its allocator frees all memory after each step.
        host.freed_blocks = if work.pid == 40_981 { part(200, self.seconds) } else { 0 };
        let key = CARDS[work.card];
        let id = ProcessId { pid: work.pid, start_ticks: 77_000 };
        let resident_bytes = work.resident_gib * GIB;
        let residency = Residency {
            bytes: resident_bytes,
            min_bytes: resident_bytes - resident_bytes / 64,
            max_bytes: resident_bytes + resident_bytes / 200,
        };
        let fetched_bytes = counters.bytes_htod.total();
        let reuse = Reuse {
            fetched_bytes,
            refetched_bytes: part(fetched_bytes, work.refetched),
            cpu_reclaimed_bytes: fetched_bytes / 200,
            bounces: fetched_bytes >> 32,
        };
        let sampled = faults > 1_000_000.0;
        Process {
            started_at: Some(self.begin - Duration::from_hours(1)),
            uid: 1000 + work.pid % 7,
            user: work.user.map(str::to_owned),
            cgroup: Some(format!("/kubepods.slice/{}", work.owner.key().id()).into()),
            exited_at: work.exited.then_some(self.begin),
            sites: sites::sites(host.cpu_read_faults),
            host,
            gpus: BTreeMap::from([(key, counters.clone())]),
            managed_bytes: Some(work.managed_gib * GIB),
            blocks: if self.cast == Cast::Crowd {
                Blocks::default()
            } else {
                memory::blocks(faults, key, self.now, sampled)
            },
            command_line: Some(work.command_line.to_owned()),
            owner: work.owner,
            ranges: memory::ranges(work.managed_gib, residency, faults, reuse),
            residency: BTreeMap::from([(key, residency)]),
            reuse: BTreeMap::from([(key, reuse)]),
            ..Process::new(id, work.name)
        }
    }

    fn evictions(&self) -> Vec<EvictionPair> {
        let process = |pid| Party::Process(ProcessId { pid, start_ticks: 77_000 });
        let pair = |card: usize, victim, evictor, cause, mib_a_second: f64| {
            let bytes = part(1 << 20, mib_a_second * self.seconds);
            EvictionPair { gpu: CARDS[card], victim, evictor, cause, evictions: bytes >> 21, bytes }
        };
        vec![
            pair(0, process(41_207), process(41_207), EvictionCause::Fault, 7_900.0),
            pair(0, process(40_981), process(41_207), EvictionCause::Fault, 1_130.0),
            pair(0, process(41_207), process(40_981), EvictionCause::Fault, 960.0),
            pair(0, process(40_981), process(40_981), EvictionCause::Fault, 84.0),
            pair(0, process(41_207), process(40_981), EvictionCause::DeviceAllocation, 0.7),
            pair(0, process(39_870), process(41_207), EvictionCause::Tool, 0.4),
            pair(0, Party::Forgotten, process(41_207), EvictionCause::Fault, 0.1),
            pair(1, process(52_113), process(52_113), EvictionCause::Fault, 2_510.0),
            pair(1, process(47_640), process(52_113), EvictionCause::Fault, 1.2),
        ]
    }

    /// Usage by owner, with verdicts that hold since the begin.
    fn usage(&self, active: &[Verdict]) -> Usage {
        let source = SourceStatus::new(SourceState::Counting { since: self.begin });
        let mut snapshot = Snapshot::empty(self.now, source);
        self.fill(&mut snapshot);
        let mut usage = Usage::default();
        usage.observe(&snapshot);
        for verdict in active {
            let process = snapshot.processes.iter().find(|process| process.id == verdict.process);
            if let Some(process) = process {
                let since = Duration::from_secs_f64(self.seconds);
                usage.add_verdict_time(process.owner.key(), usage::step(process), verdict.kind, since);
                usage.judge(verdict, process, &snapshot);
            }
        }
        usage
    }

    /// Active and ended verdicts.
    pub(crate) fn verdicts(&self) -> Verdicts {
        if !self.has_verdicts {
            return Verdicts::default();
        }
        let fetching = |mib: u64, refetched: f64, evicted: u64| Inputs {
            fault_entries: mib * 2,
            cpu_faults: mib / 40,
            bytes_htod: mib << 20,
            bytes_dtoh: evicted << 20,
            evicted_bytes: evicted << 20,
            induced_eviction_bytes: (evicted + evicted / 8) << 20,
            populated_bytes: mib << 15,
            fetched_bytes: mib << 20,
            refetched_bytes: part(mib << 20, refetched),
            cpu_reclaimed_bytes: mib << 12,
            bounces: mib / 4000,
            ..Inputs::default()
        };
        let id = |pid| ProcessId { pid, start_ticks: 77_000 };
        let verdict = |pid, card: usize, inputs, total, ended: Option<f64>| {
            let decision = decision::decide(&inputs, None);
            Verdict {
                process: id(pid),
                gpu: CARDS[card],
                peer: None,
                kind: decision.kind.unwrap_or(VerdictKind::FirstTouchStorm),
                started_at: self.begin,
                confirmed_at: self.begin + Duration::from_secs(4),
                ended_at: ended.map(|seconds| self.begin + Duration::from_secs_f64(seconds)),
                ranges: Vec::new(),
                window: Duration::from_secs(2),
                inputs,
                total,
                checks: decision.checks,
            }
        };
        let thrash = Verdict {
            ranges: memory::patterns()
                .into_iter()
                .take(2)
                .zip([(0.96, 0.95), (0.04, 0.2)])
                .map(|((begin, end, pattern), (share, refetch_ratio))| Involved {
                    begin,
                    end: end.min(begin + 187 * GIB),
                    pattern,
                    traffic_ratio: share,
                    refetch_ratio,
                })
                .collect(),
            ..verdict(41_207, 0, fetching(18_400, 0.92, 17_900), fetching(2_310_000, 0.91, 2_250_000), None)
        };
        let suffering = verdict(40_981, 0, fetching(2_300, 0.71, 2_400), fetching(290_000, 0.7, 301_000), None);
        let streaming = verdict(52_113, 1, fetching(5_100, 0.03, 5_020), fetching(640_000, 0.03, 630_000), None);
        let shared = Inputs {
            bounces: 400,
            cpu_reclaimed_bytes: 700 << 20,
            fetched_bytes: 800 << 20,
            bytes_htod: 800 << 20,
            bytes_dtoh: 760 << 20,
            ..Inputs::default()
        };
        let window = Duration::from_secs(2);
        let active = vec![thrash, streaming, suffering];
        Verdicts {
            usage: Arc::new(self.usage(&active)),
            active,
            ended: vec![verdict(38_002, 1, shared, shared, Some(41.0))],
            victims: vec![
                Victim { victim: id(40_981), evictor: id(41_207), gpu: CARDS[0], bytes: 2_260 << 20, window },
                Victim { victim: id(41_207), evictor: id(40_981), gpu: CARDS[0], bytes: 1_920 << 20, window },
                Victim { victim: id(47_640), evictor: id(52_113), gpu: CARDS[1], bytes: 2 << 20, window },
            ],
            ..Verdicts::default()
        }
    }
}

pub(crate) fn part(of: u64, share: f64) -> u64 {
    (of as f64 * share) as u64
}
