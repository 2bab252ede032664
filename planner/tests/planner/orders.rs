//! Invariants of the schedules of all planners: no evicted tensor is used, no needed one is
//! dropped, and none with contents is allocated.

use std::{collections::HashMap, ops::Range, path::Path};

use planner::{Act, Link, Machine, Part, Schedule, Tier, Unplannable, machine::Store};
use trace::{
    Detector, Iteration, Lives, Role, Tensor, TensorId,
    detect::Settings,
    draft::{Draft, DraftKernel},
};
use trace_sources::{
    import::{self, Trace},
    zoo::Hardware,
};

const GIB: u64 = 1 << 30;

fn recipe_iteration(recipe: &str) -> Iteration {
    recipe.parse::<trace_sources::zoo::Recipe>().unwrap().make(&Hardware::named("a100").unwrap()).unwrap()
}

fn machine(gpu_bytes: u64) -> Machine {
    let link = |bytes_per_second| Link { latency_ns: 1000.0, bytes_per_second };
    let store = |bytes, rate| Store { bytes, out: link(rate), back: link(rate) };
    Machine { gpu_bytes, host: store(1 << 40, 25e9), flash: Some(store(u64::MAX, 3e9)) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unallocated,
    OnGpu,
    Evicted,
    Fetching,
}

/// Each block of each tensor.
type States = Vec<Vec<State>>;

fn blocks(bytes: u64, part: Option<Part>) -> Range<usize> {
    let blocks = |bytes: u64| usize::try_from(bytes.div_ceil(Part::BLOCK_BYTES)).unwrap();
    let Some(Part { from_bytes, to_bytes }) = part else { return 0..blocks(bytes) };
    assert!(from_bytes % Part::BLOCK_BYTES == 0 && to_bytes % Part::BLOCK_BYTES == 0 && from_bytes < to_bytes);
    blocks(from_bytes)..blocks(to_bytes)
}

/// Footprint: whole blocks of a large tensor, and granules of 64 KiB of a small one.
fn footprint_bytes(bytes: u64) -> u64 {
    bytes.next_multiple_of(if bytes >= 1 << 20 { Part::BLOCK_BYTES } else { 64 << 10 })
}

/// # Panics
/// At the first invalid action.
fn check(iteration: &Iteration, schedule: &Schedule, planner: &str) -> usize {
    let tensors = iteration.tensors();
    let born = |tensor: &Tensor| if tensor.persistent { State::OnGpu } else { State::Unallocated };
    let mut states: States =
        tensors.values().iter().map(|tensor| vec![born(tensor); blocks(tensor.bytes, None).len()]).collect();
    let mut moves = 0;
    let mut execute = |states: &mut States, kernel| {
        let mut handed_bytes: HashMap<TensorId, u64> = HashMap::new();
        for action in schedule.at(kernel) {
            let Tensor { bytes, persistent, .. } = tensors[action.tensor];
            if let Act::HandOn(born) = action.act {
                let of_born = &mut states[born.0 as usize];
                assert!(
                    of_born.iter().all(|state| *state == State::Unallocated),
                    "{planner}: {action:?}, which is allocated"
                );
                of_born.fill(State::OnGpu);
                let dead = &mut states[action.tensor.0 as usize];
                assert!(
                    !dead.contains(&State::Evicted) && !persistent,
                    "{planner}: {action:?} of evicted or persistent memory"
                );
                dead.fill(State::Unallocated);
                let handed = handed_bytes.entry(action.tensor).or_insert(0);
                *handed += footprint_bytes(tensors[born].bytes);
                assert!(*handed <= footprint_bytes(bytes), "{planner}: {action:?}, which has less");
                continue;
            }
            for state in &mut states[action.tensor.0 as usize][blocks(bytes, action.part)] {
                *state = match (action.act, *state) {
                    // No effect: the eviction of a tensor whose absence wraps precedes the first
                    // iteration, and some planners do not track residency.
                    (Act::Move(Tier::Gpu), State::OnGpu) => State::OnGpu,
                    (Act::Move(Tier::Gpu), State::Evicted | State::Unallocated) => State::Fetching,
                    (Act::Move(Tier::Host | Tier::Flash), State::OnGpu) => State::Evicted,
                    (Act::Allocate, State::Unallocated) if !persistent => State::OnGpu,
                    (Act::Drop, State::OnGpu | State::Unallocated) if !persistent => State::Unallocated,
                    (_, state) => {
                        unreachable!("{planner}, {}: {action:?} of a block that is {state:?}", iteration.name())
                    }
                };
            }
            moves += usize::from(matches!(action.act, Act::Move(_)));
        }
    };
    for _ in 0..3 {
        for kernel in iteration.kernels().ids() {
            execute(&mut states, kernel);
            for operand in iteration.operands(kernel) {
                let states = &mut states[operand.tensor.0 as usize];
                let is_evicted = states.contains(&State::Evicted);
                assert!(
                    !is_evicted,
                    "{planner}: kernel {kernel} uses tensor {}, part of which is evicted",
                    operand.tensor
                );
                states.fill(State::OnGpu);
            }
            let last = trace::id::Id::new(trace::id::Id::index(kernel) + 1);
            for dead in iteration.deaths(kernel) {
                // A tensor dies without a drop, too.
                let ends = |act: Act| matches!(act, Act::Drop | Act::HandOn(_));
                if !schedule.at(last).iter().any(|action| action.tensor == dead && ends(action.act)) {
                    states[dead.0 as usize].fill(State::Unallocated);
                }
            }
        }
        execute(&mut states, iteration.end());
    }
    moves
}

#[test]
fn no_schedule_uses_evicted_tensors_or_drops_needed_ones() {
    for recipe in ["vgg16:64", "resnet50:64", "bert:64", "gpt:4", "vit:64"] {
        let iteration = recipe_iteration(recipe);
        for part in [4, 8] {
            let machine = machine(iteration.peak().bytes * part / 10);
            for planner in planner::all().into_iter().filter(|planner| planner.name() != "autoswap") {
                let schedule = planner.plan(&iteration, &machine).unwrap();
                let moves = check(&iteration, &schedule, planner.name());
                assert!(
                    moves > 4 || planner.name() == "vdnn-conv" || planner.name() == "vdnn-dyn",
                    "{} on {recipe}: {moves}",
                    planner.name()
                );
                assert_eq!(planner.plan(&iteration, &machine).unwrap(), schedule, "the same input, the same schedule");
            }
        }
    }
}

#[test]
fn recorded_programs_are_planned_by_their_launches_or_mallocs() {
    let runs = concat!(env!("CARGO_MANIFEST_DIR"), "/../offline/trace-sources/tests/samples/runs/");
    for run in ["mlp", "mlp-eager", "cnn", "cnn-eager", "burn"] {
        let Trace::Ops(stream) = import::load(Path::new(&format!("{runs}{run}.json.gz"))).unwrap() else {
            panic!("{run}")
        };
        let mut detector = Detector::new(Settings::of_recorded(&stream));
        detector.observe(&stream);
        let window = detector.state().lock().and_then(|lock| lock.iteration_window()).unwrap();
        let iteration = Iteration::of_ops(&stream, window, Lives::Used).unwrap();
        let machine = machine(iteration.peak().bytes * 9 / 10);
        let mut planned = 0;
        // PUMP fetches what a launch names, even while an earlier fetch is under way.
        let planners = planner::all().into_iter().filter(|planner| !["autoswap", "pump"].contains(&planner.name()));
        for planner in planners {
            if let Ok(schedule) = planner.plan(&iteration, &machine) {
                check(&iteration, &schedule, planner.name());
                planned += 1;
            }
        }
        assert!(planned > 3, "{run}: {planned} planners");
    }
}

fn migrated(planner: &str, iteration: &Iteration, machine: &Machine) -> Vec<(TensorId, Tier)> {
    let schedule = planner::by_name(planner).unwrap().plan(iteration, machine).unwrap();
    let out = schedule.actions().iter().filter_map(|action| match action.act {
        Act::Move(tier) if tier != Tier::Gpu => Some((action.tensor, tier)),
        _ => None,
    });
    out.collect()
}

#[test]
fn vdnn_offloads_feature_maps_regardless_of_memory() {
    let iteration = recipe_iteration("vgg16:64");
    let all = migrated("vdnn-all", &iteration, &machine(1 << 50));
    let convolutions = migrated("vdnn-conv", &iteration, &machine(1 << 50));
    assert_eq!(all, migrated("vdnn-all", &iteration, &machine(GIB)));
    assert!(convolutions.len() >= 12 && convolutions.len() < all.len(), "{} of {}", convolutions.len(), all.len());
    assert!(convolutions.iter().all(|it| all.contains(it) && it.1 == Tier::Host));
    // No kernel of a transformer is named convolution.
    assert_eq!(migrated("vdnn-conv", &recipe_iteration("gpt:4"), &machine(GIB)), []);
}

#[test]
fn dynamic_vdnn_offloads_the_least_with_which_the_rest_fits() {
    let iteration = recipe_iteration("vgg16:64");
    let peak = iteration.peak().bytes;
    let migrated_on = |planner: &str, tenths: u64| migrated(planner, &iteration, &machine(peak * tenths / 10));
    let [all, convolutions] = ["vdnn-all", "vdnn-conv"].map(|planner| migrated_on(planner, 20));
    // With the alignment of blocks the peak takes a little more than its bytes.
    assert_eq!(migrated_on("vdnn-dyn", 11), []);
    assert_eq!(migrated_on("vdnn-dyn", 9), convolutions);
    assert_eq!(migrated_on("vdnn-dyn", 1), all);
    let steps: Vec<_> = (1..=11).map(|tenths| migrated_on("vdnn-dyn", tenths).len()).collect();
    assert!(steps.is_sorted_by(|less_memory, more_memory| less_memory >= more_memory), "{steps:?}");
}

#[test]
fn vdnn_reports_a_host_too_small_for_the_feature_maps() {
    let iteration = recipe_iteration("vgg16:64");
    let small = Machine { host: Store { bytes: GIB, ..machine(GIB).host }, ..machine(GIB) };
    let error = planner::by_name("vdnn-all").unwrap().plan(&iteration, &small).unwrap_err();
    assert!(error.to_string().ends_with("and the host has 1073741824"), "{error}");
}

#[test]
fn flashneuron_and_g10_migrate_nothing_if_all_fits() {
    let iteration = recipe_iteration("resnet50:32");
    for planner in ["flashneuron", "g10", "g10-paper"] {
        assert_eq!(migrated(planner, &iteration, &machine(1 << 50)), [], "{planner}");
    }
}

#[test]
fn flashneuron_offloads_the_first_layers_first_and_more_with_less_memory() {
    let iteration = recipe_iteration("resnet50:32");
    let of = |percent| migrated("flashneuron", &iteration, &machine(iteration.peak().bytes * percent / 100));
    let (many, few) = (of(40), of(80));
    assert!(!few.is_empty() && few.len() < many.len());
    assert_eq!(many[..few.len()], few);
    assert!(many.iter().all(|(_, tier)| *tier == Tier::Flash));
}

#[test]
fn foresight_evicts_as_many_blocks_as_do_not_fit() {
    // 40 MiB are idle while kernels work on 30 and 2.
    let mut draft = Draft::default();
    let [idle, large, small] = [(40, true), (30, false), (2, false)].map(|(mib, persistent)| {
        draft.tensor(Tensor { name: String::new(), bytes: mib << 20, role: Role::Other, persistent })
    });
    for (inputs, outputs) in [(vec![idle], vec![]), (vec![], vec![large, small]), (vec![large, small], vec![])] {
        draft.kernel(DraftKernel { name: String::new(), duration_ns: 1_000_000, inputs, outputs });
    }
    let iteration = draft.check().unwrap();
    let schedule = planner::by_name("foresight").unwrap().plan(&iteration, &machine(63 << 20)).unwrap();
    let moved: Vec<_> = schedule
        .actions()
        .iter()
        .filter(|action| action.tensor == idle)
        .map(|action| (action.act, action.part))
        .collect();
    // Nine MiB do not fit; these are five blocks of two.
    let part = Some(Part { from_bytes: 30 << 20, to_bytes: 40 << 20 });
    assert_eq!(moved, [(Act::Move(Tier::Gpu), part), (Act::Move(Tier::Host), part)]);
}

#[test]
fn foresight_respects_the_hosts_memory_and_needs_flash_for_the_rest() {
    let iteration = recipe_iteration("resnet50:64");
    let large_host = machine(iteration.peak().bytes * 4 / 10);
    let small_host =
        |flash| Machine { host: Store { bytes: iteration.peak().bytes / 4, ..large_host.host }, flash, ..large_host };
    let foresight = planner::by_name("foresight").unwrap();
    let tiers = |machine: &Machine| -> Vec<_> {
        migrated("foresight", &iteration, machine).into_iter().map(|(_, tier)| tier).collect()
    };
    assert!(!tiers(&large_host).contains(&Tier::Flash));
    let both = tiers(&small_host(large_host.flash));
    assert!(both.contains(&Tier::Flash) && both.contains(&Tier::Host));
    assert!(matches!(foresight.plan(&iteration, &small_host(None)), Err(Unplannable::HostTooSmall { .. })));
}
