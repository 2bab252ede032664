//! What holds for the schedules of all planners: nothing is used that is away, dropped that is still needed, or made room for that has contents.

use std::{collections::HashMap, ops::Range};

use planner::{Act, Link, Machine, Part, Schedule, Tier, Unplannable, machine::Store};
use trace::{
    Iteration, Role, Tensor, TensorId,
    draft::{Draft, DraftKernel},
    zoo::Hardware,
};

const GIB: u64 = 1 << 30;

fn made(recipe: &str) -> Iteration {
    recipe.parse::<trace::zoo::Recipe>().unwrap().make(&Hardware::named("a100").unwrap()).unwrap()
}

fn machine(gpu_bytes: u64) -> Machine {
    let link = |bytes_per_second| Link { latency_ns: 1000.0, bytes_per_second };
    let store = |bytes, rate| Store { bytes, out: link(rate), back: link(rate) };
    Machine { gpu_bytes, host: store(1 << 40, 25e9), flash: Some(store(u64::MAX, 3e9)) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Nowhere,
    There,
    Away,
    Coming,
}

/// Each block of each tensor.
type States = Vec<Vec<State>>;

fn blocks(bytes: u64, part: Option<Part>) -> Range<usize> {
    let blocks = |bytes: u64| usize::try_from(bytes.div_ceil(Part::BLOCK_BYTES)).unwrap();
    let Some(Part { from_bytes, to_bytes }) = part else { return 0..blocks(bytes) };
    assert!(from_bytes % Part::BLOCK_BYTES == 0 && to_bytes % Part::BLOCK_BYTES == 0 && from_bytes < to_bytes);
    blocks(from_bytes)..blocks(to_bytes)
}

/// Whole blocks of a large tensor, and granules of 64 KiB of a small one.
fn footprint_bytes(bytes: u64) -> u64 {
    bytes.next_multiple_of(if bytes >= 1 << 20 { Part::BLOCK_BYTES } else { 64 << 10 })
}

/// # Panics
/// At the first action that cannot be meant.
fn check(iteration: &Iteration, schedule: &Schedule, planner: &str) -> usize {
    let tensors = iteration.tensors();
    let born = |tensor: &Tensor| if tensor.persistent { State::There } else { State::Nowhere };
    let mut states: States =
        tensors.values().iter().map(|tensor| vec![born(tensor); blocks(tensor.bytes, None).len()]).collect();
    let mut moves = 0;
    let mut carry_out = |states: &mut States, kernel| {
        let mut given_bytes: HashMap<TensorId, u64> = HashMap::new();
        for action in schedule.at(kernel) {
            let Tensor { bytes, persistent, .. } = tensors[action.tensor];
            if let Act::HandOn(born) = action.act {
                let of_born = &mut states[born.0 as usize];
                assert!(of_born.iter().all(|state| *state == State::Nowhere), "{planner}: {action:?}, which is there");
                of_born.fill(State::There);
                let dead = &mut states[action.tensor.0 as usize];
                assert!(!dead.contains(&State::Away) && !persistent, "{planner}: {action:?} of what is not there");
                dead.fill(State::Nowhere);
                let given = given_bytes.entry(action.tensor).or_insert(0);
                *given += footprint_bytes(tensors[born].bytes);
                assert!(*given <= footprint_bytes(bytes), "{planner}: {action:?}, which has less");
                continue;
            }
            for state in &mut states[action.tensor.0 as usize][blocks(bytes, action.part)] {
                *state = match (action.act, *state) {
                    // Nothing to do: what wraps has not left before the first iteration, and some planners do not know what is there.
                    (Act::Move(Tier::Gpu), State::There) => State::There,
                    (Act::Move(Tier::Gpu), State::Away | State::Nowhere) => State::Coming,
                    (Act::Move(Tier::Host | Tier::Flash), State::There) => State::Away,
                    (Act::Allocate, State::Nowhere) if !persistent => State::There,
                    (Act::Drop, State::There | State::Nowhere) if !persistent => State::Nowhere,
                    (_, state) => unreachable!("{planner}, {}: {action:?} of what is {state:?}", iteration.name()),
                };
            }
            moves += usize::from(matches!(action.act, Act::Move(_)));
        }
    };
    for _ in 0..3 {
        for kernel in iteration.kernels().ids() {
            carry_out(&mut states, kernel);
            for operand in iteration.operands(kernel) {
                let states = &mut states[operand.tensor.0 as usize];
                let is_away = states.contains(&State::Away);
                assert!(!is_away, "{planner}: kernel {kernel} uses tensor {}, part of which is away", operand.tensor);
                states.fill(State::There);
            }
            let last = trace::id::Id::new(trace::id::Id::index(kernel) + 1);
            for dead in iteration.deaths(kernel) {
                // Without a drop it dies all the same.
                let ends = |act: Act| matches!(act, Act::Drop | Act::HandOn(_));
                if !schedule.at(last).iter().any(|action| action.tensor == dead && ends(action.act)) {
                    states[dead.0 as usize].fill(State::Nowhere);
                }
            }
        }
        carry_out(&mut states, iteration.end());
    }
    moves
}

#[test]
fn no_schedule_uses_what_is_away_or_drops_what_is_needed() {
    for recipe in ["vgg16:64", "resnet50:64", "bert:64", "gpt:4", "vit:64"] {
        let iteration = made(recipe);
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

fn sent(planner: &str, iteration: &Iteration, machine: &Machine) -> Vec<(TensorId, Tier)> {
    let schedule = planner::by_name(planner).unwrap().plan(iteration, machine).unwrap();
    let out = schedule.actions().iter().filter_map(|action| match action.act {
        Act::Move(tier) if tier != Tier::Gpu => Some((action.tensor, tier)),
        _ => None,
    });
    out.collect()
}

#[test]
fn vdnn_sends_what_layers_keep_to_the_host_however_much_memory_there_is() {
    let iteration = made("vgg16:64");
    let all = sent("vdnn-all", &iteration, &machine(1 << 50));
    let convolutions = sent("vdnn-conv", &iteration, &machine(1 << 50));
    assert_eq!(all, sent("vdnn-all", &iteration, &machine(GIB)));
    assert!(convolutions.len() >= 12 && convolutions.len() < all.len(), "{} of {}", convolutions.len(), all.len());
    assert!(convolutions.iter().all(|it| all.contains(it) && it.1 == Tier::Host));
    // Nothing in a transformer is called a convolution.
    assert_eq!(sent("vdnn-conv", &made("gpt:4"), &machine(GIB)), []);
}

#[test]
fn dynamic_vdnn_sends_the_least_with_which_the_rest_has_room() {
    let iteration = made("vgg16:64");
    let peak = iteration.peak().bytes;
    let sent_on = |planner: &str, tenths: u64| sent(planner, &iteration, &machine(peak * tenths / 10));
    let [all, convolutions] = ["vdnn-all", "vdnn-conv"].map(|planner| sent_on(planner, 20));
    // With the alignment of blocks the peak takes a little more than its bytes.
    assert_eq!(sent_on("vdnn-dyn", 11), []);
    assert_eq!(sent_on("vdnn-dyn", 9), convolutions);
    assert_eq!(sent_on("vdnn-dyn", 1), all);
    let steps: Vec<_> = (1..=11).map(|tenths| sent_on("vdnn-dyn", tenths).len()).collect();
    assert!(steps.is_sorted_by(|less_memory, more_memory| less_memory >= more_memory), "{steps:?}");
}

#[test]
fn vdnn_says_if_the_host_cannot_take_what_layers_keep() {
    let iteration = made("vgg16:64");
    let small = Machine { host: Store { bytes: GIB, ..machine(GIB).host }, ..machine(GIB) };
    let error = planner::by_name("vdnn-all").unwrap().plan(&iteration, &small).unwrap_err();
    assert!(error.to_string().ends_with("and the host has 1073741824"), "{error}");
}

#[test]
fn flashneuron_and_g10_send_nothing_where_all_fits() {
    let iteration = made("resnet50:32");
    for planner in ["flashneuron", "g10", "g10-paper"] {
        assert_eq!(sent(planner, &iteration, &machine(1 << 50)), [], "{planner}");
    }
}

#[test]
fn flashneuron_sends_the_first_layers_first_and_more_of_them_to_less_memory() {
    let iteration = made("resnet50:32");
    let of = |percent| sent("flashneuron", &iteration, &machine(iteration.peak().bytes * percent / 100));
    let (much, little) = (of(40), of(80));
    assert!(!little.is_empty() && little.len() < much.len());
    assert_eq!(much[..little.len()], little);
    assert!(much.iter().all(|(_, tier)| *tier == Tier::Flash));
}

#[test]
fn foresight_sends_as_many_blocks_away_as_have_no_room() {
    // 40 MiB are idle while 30 and 2 are worked on.
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
    // Nine are too many; that is five blocks of two.
    let part = Some(Part { from_bytes: 30 << 20, to_bytes: 40 << 20 });
    assert_eq!(moved, [(Act::Move(Tier::Gpu), part), (Act::Move(Tier::Host), part)]);
}

#[test]
fn foresight_keeps_the_host_within_its_memory_and_needs_flash_or_room_for_the_rest() {
    let iteration = made("resnet50:64");
    let whole = machine(iteration.peak().bytes * 4 / 10);
    let little = |flash| Machine { host: Store { bytes: iteration.peak().bytes / 4, ..whole.host }, flash, ..whole };
    let foresight = planner::by_name("foresight").unwrap();
    let tiers = |machine: &Machine| -> Vec<_> {
        sent("foresight", &iteration, machine).into_iter().map(|(_, tier)| tier).collect()
    };
    assert!(!tiers(&whole).contains(&Tier::Flash));
    let both = tiers(&little(whole.flash));
    assert!(both.contains(&Tier::Flash) && both.contains(&Tier::Host));
    assert!(matches!(foresight.plan(&iteration, &little(None)), Err(Unplannable::HostTooSmall { .. })));
}
