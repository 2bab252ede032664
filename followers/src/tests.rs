use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, SystemTime},
};

use call_ring::{
    Dim3, Group, Kind, Lane, Memory, MemoryKind, Mode as RingMode, NAME, PLAN_BYTES, PLAN_NAME, PlanMemory, SyncKind,
    TOTAL_BYTES, Target as RingTarget,
    plan::{HANDOVER_WAIT_MAX_NS, TABLE_WORDS},
};
use model::{
    ActuatorChoice, ActuatorKind, Block, Budget, Counters, Directive, Following, FollowingState, Gpu, GpuKey, GpuUuid,
    Mode, PlanCommand, PlannedIteration, Process, ProcessId, Publication, Residency, Snapshot, SourceState,
    SourceStatus,
    policy::{POLICIES, of_plans},
};
use plans::{Answer, Outliner, methods::Workload};
use recorder::{Quotas, Recordings};
use sys::{Roots, fake::until, processes, shared_memory::SharedMemory};

use crate::{
    Followers, Planners, Probes, Settings,
    followed::{Followed, start},
    shared::Target,
    shares::{Limits, Shares},
};

const GPU: GpuUuid = GpuUuid([7; 16]);
const UNIT: u64 = 2 << 20;
const BASE: u64 = 1 << 40;
/// Layers of a training, each with three units: forth and back, and an update of each.
const LAYERS: u64 = 8;
/// Fewer units than the training has.
const GPU_UNITS: u64 = 19;
/// Interval of the loop that acts.
const INTERVAL: Duration = Duration::from_millis(100);

/// Writer of the ring, as the helper is.
struct Ring<'a> {
    memory: Memory<'a>,
    lane: Lane<'a>,
    launches: u64,
    time_ns: u64,
}

impl<'a> Ring<'a> {
    fn begin(&mut self, kind: Kind, words: [u64; 5]) -> Group<'a> {
        self.time_ns += 100_000;
        Group::begin(self.lane, self.memory.stamp(self.time_ns, 1), kind, 0, words)
    }

    fn launch(&mut self, function: u64, units: &[u64]) {
        self.launches += 1;
        self.time_ns += 100_000;
        let (one, stamp) = (Dim3::new(1, 1, 1).to_word(), self.memory.stamp(self.time_ns, 1));
        let words = [function, one, one, self.launches << 32];
        let mut group = Group::with_target(self.lane, stamp, Kind::Launch, 0, RingTarget::Stream(1), words);
        for (offset_bytes, unit) in (0..).step_by(8).zip(units) {
            group.add_pointer(offset_bytes, address(*unit));
        }
        assert!(group.publish());
    }

    fn iterate(&mut self) {
        let forth = (0..LAYERS).map(|layer| vec![3 * layer]);
        let back = (0..LAYERS).rev().map(|layer| vec![3 * layer, 3 * layer + 1]);
        let update = (0..LAYERS).map(|layer| vec![3 * layer, 3 * layer + 1, 3 * layer + 2]);
        for (function, units) in (1..).zip(forth.chain(back).chain(update)) {
            self.launch(function, &units);
        }
        assert!(self.begin(Kind::Sync, [1, SyncKind::Stream as u64, 0, 0, 0]).publish());
    }
}

fn address(unit: u64) -> u64 {
    BASE + unit * 2 * UNIT
}

/// Whether this machine lets the test open mappings.
fn is_permitted() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    assert!(is_root || std::env::var_os("UVMD_TEST_REQUIRE_ROOT").is_none());
    is_root
}

fn memory(name: &std::ffi::CStr, bytes: usize) -> SharedMemory {
    SharedMemory::create(name, bytes.try_into().unwrap()).unwrap()
}

/// Recordings of a process, with the calls that its ring has now.
fn recordings(process: ProcessId) -> Arc<Recordings> {
    let quotas = Quotas { window_bytes: 1 << 20, user_max: 1, node_max: 1 };
    let (recordings, running) = (Recordings::new(Roots::default(), quotas), [(process, 0)].into());
    until("calls", || {
        recordings.scan(&running);
        recordings.poll();
        recordings.snapshot(process).filter(|recording| recording.window().added() > 0).map(|_| ())
    });
    Arc::new(recordings)
}

fn snapshot(id: ProcessId) -> Snapshot {
    let source = SourceStatus::new(SourceState::Waiting { missing: Vec::new() });
    let mut snapshot = Snapshot::empty(SystemTime::UNIX_EPOCH, source);
    let mut process = Process::new(id, "python");
    process.gpus.insert(GpuKey::Known(GPU), Counters::default());
    snapshot.processes.push(process);
    let gpu = Gpu { memory_bytes: Some(GPU_UNITS * UNIT), ..Gpu::default() };
    snapshot.gpus.insert(GpuKey::Known(GPU), gpu);
    snapshot
}

fn directive(policy: &str) -> Directive {
    Directive {
        override_id: None,
        mode: Mode::Act,
        policy: policy.to_owned(),
        parameters: BTreeMap::new(),
        budget: Budget::default(),
        range: None,
        allocation_larger_than_bytes: None,
    }
}

/// Result of following the process for a policy; `None` while iterations are not confirmed.
fn followed(
    followers: &mut Followers,
    snapshot: &Snapshot,
    id: ProcessId,
    policy: &str,
    memory: &BTreeMap<ProcessId, model::Memory>,
) -> Option<Result<PlannedIteration, String>> {
    let directives = [(id, directive(policy))].into();
    let following = followers.follow(snapshot, &directives, memory, &BTreeSet::new()).remove(&id)?;
    match following.state {
        FollowingState::Planned(planned) if following.policy == policy => Some(Ok(planned)),
        FollowingState::Refused(reason) => Some(Err(reason)),
        FollowingState::Watching => None,
        other => panic!("{other:?}"),
    }
}

/// Planners in this process, which answer at once.
fn at_once() -> Planners {
    Planners::with_factory(|methods| Box::new(methods))
}

/// Settings with which plans are carried out, without probes.
const SETTINGS: Settings = Settings { interval: INTERVAL, actuator: ActuatorChoice::Auto, probes: None };

/// Followers of recorded processes, with these planners and the helper.
fn with_planners(recordings: &Arc<Recordings>, planners: Planners) -> Followers {
    Followers::new(Some(Arc::clone(recordings)), planners, SETTINGS)
}

/// State of the process after one more iteration, followed for a plan.
fn followed_on(
    followers: &mut Followers,
    snapshot: &Snapshot,
    id: ProcessId,
    ring: &mut Ring<'_>,
    recordings: &Arc<Recordings>,
) -> Option<Following> {
    ring.iterate();
    recordings.poll();
    let directives = [(id, directive("auto-plan"))].into();
    followers.follow(snapshot, &directives, &BTreeMap::new(), &BTreeSet::new()).remove(&id)
}

/// Command to publish a table.
const fn publication(process: ProcessId, version: u64, launches_wait: bool) -> PlanCommand {
    PlanCommand { process, publish: Some(Publication { version, launches_wait }) }
}

/// Time for which launches of the published plan wait for moves to be handed over.
fn handover_wait_ns(plan: PlanMemory<'_>) -> u64 {
    let words: Vec<AtomicU64> = std::iter::repeat_with(AtomicU64::default).take(TABLE_WORDS).collect();
    let copy = call_ring::plan::Table::new(&words);
    assert!(plan.copy_to(plan.generation(), copy));
    copy.check().unwrap().handover_wait_ns
}

/// Units that no launch names.
const ELSEWHERE: std::ops::Range<u64> = 100..100 + LAYERS;

/// Memory with this number of GPU faults on each of these units.
fn faults(units: std::ops::Range<u64>, count: u64) -> model::Memory {
    let block = |unit| Block { fault_entries: count, ..Block::new(address(unit), SystemTime::UNIX_EPOCH) };
    model::Memory::new(units.map(block).collect(), Vec::new())
}

/// Snapshot in which each process evicts its own memory, and has this many bytes of it on the GPU.
fn thrashing(mut snapshot: Snapshot, evictions: u64, resident_bytes: u64) -> Snapshot {
    let counters = Counters { evictions, induced_evictions: evictions, ..Counters::default() };
    for process in &mut snapshot.processes {
        process.gpus.insert(GpuKey::Known(GPU), counters.clone());
        process.residency.insert(GpuKey::Known(GPU), Residency::exactly(resident_bytes));
    }
    snapshot
}

#[test]
fn each_plan_policy_plans_a_recorded_training() {
    if !is_permitted() {
        return;
    }
    // The program is this test.
    let (ring, plan) = (memory(NAME, TOTAL_BYTES), memory(PLAN_NAME, PLAN_BYTES));
    let memory = Memory::create(ring.words(), RingMode::Record).unwrap();
    let plan = PlanMemory::create(plan.words()).unwrap();
    let mut ring = Ring { memory, lane: memory.lane(0), launches: 0, time_ns: 0 };
    for unit in 0..3 * LAYERS {
        let words = [0, address(unit), UNIT, MemoryKind::Managed as u64, 0];
        assert!(ring.begin(Kind::Malloc, words).publish());
    }
    (0..12).for_each(|_| ring.iterate());
    let pid = std::process::id();
    let start_ticks = processes::start_ticks(&Roots::default(), pid).unwrap().unwrap();
    let id = ProcessId { pid, start_ticks };

    let recordings = recordings(id);
    let mut followers = with_planners(&recordings, at_once());
    let snapshot = snapshot(id);
    for policy in POLICIES.iter().filter_map(|policy| of_plans(policy.name)) {
        let nobody = BTreeMap::new();
        let planned = until(policy.name, || followed(&mut followers, &snapshot, id, policy.name, &nobody));
        let planned = planned.unwrap_or_else(|reason| panic!("{policy:?}: {reason}"));
        assert_eq!((planned.launches, planned.coverage_percent), (3 * LAYERS, None), "{policy:?}");
        let is_moved = (planned.to_gpu_bytes > 0, planned.to_host_bytes > 0);
        match policy.name {
            "pump" => {
                assert_eq!(is_moved, (true, false));
                assert!(planned.faulted_blocks < planned.driver_faulted_blocks, "{planned:?}");
            }
            "harmful-plan" => {
                assert_eq!(is_moved, (false, true));
                assert!(planned.link_bytes() > planned.driver_bytes, "{planned:?}");
            }
            _ => {
                assert_eq!((is_moved, planned.evicted_bytes), ((true, true), 0), "{policy:?}");
                assert!(planned.link_bytes() < planned.driver_bytes, "{planned:?}");
            }
        }
        let before = plan.generation();
        followers.carry_out(vec![publication(id, planned.version, false)]);
        assert_ne!(plan.generation(), before, "the helper has it: {policy:?}");
        assert_eq!(handover_wait_ns(plan), 0, "its launches wait for nobody");
        followers.carry_out(vec![publication(id, planned.version, true)]);
        assert_eq!(handover_wait_ns(plan), HANDOVER_WAIT_MAX_NS);
        followers.carry_out(vec![publication(id, planned.version, false)]);
        assert_eq!(handover_wait_ns(plan), 0);
        let published = plan.generation();
        followers.carry_out(vec![publication(id, planned.version + 1, false)]);
        assert_eq!(plan.generation(), published, "the follower has no such table: {policy:?}");
        followers.carry_out(vec![PlanCommand { process: id, publish: None }]);
        assert_ne!(plan.generation(), published, "it is withdrawn: {policy:?}");
    }
    plan_ends_once_the_program_has_another_filter(&mut followers, &snapshot, id, &memory);
    // The same program, followed anew.
    followers.clear();
    let mut count = 0;
    let refused = until("refusal", || {
        count += 1;
        ring.iterate();
        recordings.poll();
        followed(&mut followers, &snapshot, id, "auto-plan", &[(id, faults(ELSEWHERE, count))].into())
    });
    let reason = "launches name only 0 % of the VA blocks that the GPU faults on";
    assert_eq!(refused.map(|planned| planned.coverage_percent), Err(reason.to_owned()));

    // The same program, without any of its memory mapped.
    followers.clear();
    let mut unmapped = snapshot.clone();
    unmapped.processes.iter_mut().for_each(|process| process.managed_bytes = Some(0));
    let refused = until("refusal", || {
        count += 1;
        ring.iterate();
        recordings.poll();
        followed(&mut followers, &unmapped, id, "auto-plan", &[(id, faults(ELSEWHERE, count))].into())
    });
    let claimed_bytes = 3 * LAYERS * UNIT;
    let reason = format!("{reason}; {claimed_bytes} bytes that the program claims are not mapped, and are ignored");
    assert_eq!(refused.map(|planned| planned.coverage_percent), Err(reason));

    followers_of_one_user_leave_memory_to_another(&snapshot, id, &recordings);
    failed_follower_is_restarted_once_and_then_unavailable(&snapshot, id, &mut ring, &recordings);
    planning_proceeds_while_calls_are_followed_and_ends_with_the_follower(&snapshot, id, &mut ring, &recordings);

    // The same program, whose memory fills the GPU.
    followers.clear();
    let planned = until("plan for what the GPU holds", || {
        count += 1;
        ring.iterate();
        recordings.poll();
        let snapshot = thrashing(snapshot.clone(), count, (GPU_UNITS - 1) * UNIT);
        followed(&mut followers, &snapshot, id, "auto-plan", &[(id, faults(0..3 * LAYERS, count))].into())
    });
    assert_eq!(planned.map(|planned| planned.peak_bytes), Ok((GPU_UNITS - 1) * UNIT));

    let settings = Settings { probes: Some(Probes::default()), ..SETTINGS };
    let mut probing = Followers::new(Some(Arc::clone(&recordings)), at_once(), settings);
    probes_precede_the_plan_in_mode_act_only(&mut probing, &snapshot, id, &mut ring, &recordings, &plan);
}

/// The follower checks the filters, and not the loop that acts.
fn plan_ends_once_the_program_has_another_filter(
    followers: &mut Followers,
    snapshot: &Snapshot,
    id: ProcessId,
    ring: &Memory<'_>,
) {
    let planned = until("a plan", || followed(followers, snapshot, id, "auto-plan", &BTreeMap::new())).unwrap();
    followers.carry_out(vec![publication(id, planned.version, false)]);
    assert_eq!(ring.mode(), RingMode::Act);
    let filters = ring.filters();
    ring.set_filters(filters.map(|filters| filters + 1));
    let directives = [(id, directive("auto-plan"))].into();
    let ended = until("the end of the plan", || {
        followers.follow(snapshot, &directives, &BTreeMap::new(), &BTreeSet::new()).remove(&id)?.report.ended
    });
    assert_eq!(ended, "its helper follows no plans: the program has installed a seccomp filter since it started");
    assert_eq!(ring.mode(), RingMode::Record);
    followers.carry_out(vec![publication(id, planned.version, false)]);
    assert_eq!(ring.mode(), RingMode::Record, "nor is another one published");
    ring.set_filters(filters);
    until("the next check", || {
        followers.carry_out(vec![publication(id, planned.version, false)]);
        (ring.mode() == RingMode::Act).then_some(())
    });
    followers.carry_out(vec![PlanCommand { process: id, publish: None }]);
}

/// Planners that never answer.
struct Never(Arc<AtomicBool>);

impl Outliner for Never {
    fn start(&mut self, _: Workload) -> Option<Answer> {
        None
    }

    fn poll(&mut self) -> Option<Answer> {
        None
    }

    fn status(&self) -> &'static str {
        "planners sleep"
    }

    fn cancel(&mut self) {}
}

impl Drop for Never {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Many followers of one user, and then one of another.
fn followers_of_one_user_leave_memory_to_another(snapshot: &Snapshot, id: ProcessId, recordings: &Arc<Recordings>) {
    let mut followers = with_planners(recordings, at_once());
    // Room for three followers of a user, before their calls are followed.
    let user_bytes = 6 * recordings.bytes_of(id);
    let shares = Shares::new(Limits { node_bytes: 2 * user_bytes, user_bytes });
    followers.sources.as_mut().unwrap().shares = shares.clone();
    let sources = followers.sources.as_ref().unwrap();
    let target = Target { policy: "auto-plan", gpu: GPU, gpu_bytes: GPU_UNITS * UNIT };
    let start = |uid| {
        let process = Process { uid, ..snapshot.processes[0].clone() };
        let followed = start(sources, &process, target).unwrap();
        followed.send_sample(&process, None, u64::MAX, false);
        followed
    };
    let state = |followed: &Followed| {
        assert!(shares.bytes() <= user_bytes * 2);
        match followed.following().state {
            FollowingState::Watching => None,
            state => Some(state),
        }
    };
    let many: Vec<Followed> = (0..12).map(|_| start(1)).collect();
    let states: Vec<FollowingState> =
        many.iter().map(|followed| until("plans of the first user", || state(followed))).collect();
    let planned = states.iter().filter(|state| matches!(state, FollowingState::Planned(_))).count();
    assert!(planned > 0 && planned < many.len(), "{planned} followers have room");
    assert!(shares.bytes() <= user_bytes, "{} of {user_bytes} bytes", shares.bytes());
    for state in states {
        match state {
            FollowingState::Planned(_) => {}
            FollowingState::Unavailable(reason) => assert!(
                reason
                    .starts_with("memory for following calls: the quota of the process's user is reached: user 1 has"),
                "{reason}"
            ),
            other => panic!("{other:?}"),
        }
    }
    let other = start(2);
    let planned = until("the plan of another user", || state(&other));
    assert!(matches!(planned, FollowingState::Planned(_)), "{planned:?}");
    drop((many, other));
    until("the end of all followers", || (shares.bytes() == 0).then_some(()));
}

/// A follower whose planners panic.
fn failed_follower_is_restarted_once_and_then_unavailable(
    snapshot: &Snapshot,
    id: ProcessId,
    ring: &mut Ring<'_>,
    recordings: &Arc<Recordings>,
) {
    let started = Arc::new(AtomicU64::new(0));
    let starts = Arc::clone(&started);
    let planners = Planners::with_factory(move |_| {
        starts.fetch_add(1, Ordering::Relaxed);
        Box::new(Panics)
    });
    let mut followers = with_planners(recordings, planners);
    let mut follow = || followed_on(&mut followers, snapshot, id, ring, recordings);
    let reason = until("its failure", || match follow()?.state {
        FollowingState::Unavailable(reason) => Some(reason),
        FollowingState::Watching => None,
        other => panic!("{other:?}"),
    });
    assert_eq!(reason, "its follower failed: no such tensor");
    assert_eq!(started.load(Ordering::Relaxed), 2, "it was replaced once");
    for _ in 0..20 {
        assert_eq!(follow().unwrap().state, FollowingState::Unavailable(reason.clone()));
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(started.load(Ordering::Relaxed), 2);
}

/// Planners that panic.
struct Panics;

impl Outliner for Panics {
    fn start(&mut self, _: Workload) -> Option<Answer> {
        panic!("no such tensor")
    }

    fn poll(&mut self) -> Option<Answer> {
        None
    }

    fn cancel(&mut self) {}
}

/// A follower whose planners never answer continues to follow. They end with it.
fn planning_proceeds_while_calls_are_followed_and_ends_with_the_follower(
    snapshot: &Snapshot,
    id: ProcessId,
    ring: &mut Ring<'_>,
    recordings: &Arc<Recordings>,
) {
    let has_ended = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&has_ended);
    let planners = Planners::with_factory(move |_| Box::new(Never(Arc::clone(&ends))));
    let mut followers = with_planners(recordings, planners);
    let mut follow = || followed_on(&mut followers, snapshot, id, ring, recordings);
    let first = until("planning", || {
        let Following { state, iteration, .. } = follow()?;
        match state {
            FollowingState::Planning(status) => Some((status, iteration?.number)),
            FollowingState::Watching => None,
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(first.0, "planners sleep");
    let (status, number) = first;
    until("further iterations", || {
        let Following { state, iteration, .. } = follow()?;
        assert_eq!(state, FollowingState::Planning(status));
        (iteration?.number > number + 2).then_some(())
    });
    assert!(!has_ended.load(Ordering::Relaxed));
    followers.clear();
    until("the end of its planners", || has_ended.load(Ordering::Relaxed).then_some(()));
}

/// In mode act, probes come before the plan; in mode shadow, the plan is made without them.
fn probes_precede_the_plan_in_mode_act_only(
    followers: &mut Followers,
    snapshot: &Snapshot,
    id: ProcessId,
    ring: &mut Ring<'_>,
    recordings: &Arc<Recordings>,
    plan: &PlanMemory<'_>,
) {
    let mut count = 0;
    let mut follow = |followers: &mut Followers, mode| {
        count += 1;
        ring.iterate();
        recordings.poll();
        let directives = [(id, Directive { mode, ..directive("auto-plan") })].into();
        followers
            .follow(snapshot, &directives, &[(id, faults(0..3 * LAYERS, count))].into(), &BTreeSet::new())
            .remove(&id)
    };
    let probed = until("probes", || match follow(followers, Mode::Act)?.state {
        FollowingState::Probing(probed) if probed.publish.is_some() => Some(probed),
        FollowingState::Watching | FollowingState::Probing(_) => None,
        other => panic!("{other:?}"),
    });
    assert!(probed.figures.launches > 0 && probed.to_host_bytes > 0, "{probed:?}");
    assert!(probed.to_host_bytes + probed.to_gpu_bytes <= GPU_UNITS * UNIT / 4, "a quarter of the GPU's memory");
    let before = plan.generation();
    followers.carry_out(vec![publication(id, probed.publish.unwrap(), true)]);
    assert_ne!(plan.generation(), before, "the helper has its table");
    let published = plan.generation();
    followers.carry_out(vec![PlanCommand { process: id, publish: None }]);
    assert_ne!(plan.generation(), published, "it is withdrawn");
    // This test follows no tables. Without permission, probing ends at once, or does not begin.
    for is_anew in [false, true] {
        if is_anew {
            followers.clear();
        }
        let planned = until("a plan", || match follow(followers, Mode::Shadow)?.state {
            FollowingState::Planned(planned) => Some(planned),
            FollowingState::Watching | FollowingState::Probing(_) => None,
            other => panic!("{other:?}"),
        });
        assert_eq!(planned.probes, None);
    }
}

#[test]
fn program_has_no_plan_where_its_helper_may_not_act() {
    let quotas = Quotas { window_bytes: 0, user_max: 0, node_max: 0 };
    let recordings = Arc::new(Recordings::new(Roots::default(), quotas));
    let by_ioctl = Settings { actuator: ActuatorChoice::Only(ActuatorKind::Ioctl), ..SETTINGS };
    let mut followers = Followers::new(Some(recordings), at_once(), by_ioctl);
    let id = ProcessId { pid: 1, start_ticks: 1 };
    let directives = [(id, directive("auto-plan"))].into();
    let following =
        followers.follow(&snapshot(id), &directives, &BTreeMap::new(), &BTreeSet::new()).remove(&id).unwrap();
    let reason = "policy.actuator is \"ioctl\", and only the helper carries out plans";
    assert_eq!(following.state, FollowingState::Unavailable(reason.to_owned()));
}
