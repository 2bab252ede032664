//! Programs whose cost can be derived by hand.
#![expect(clippy::unwrap_used, reason = "a test panics on unexpected values")]

use planner::{Act, Action, Part, Schedule, Tier};
use sim::{Freed, Machine, Outcome, RunError, Setup, driver, planned};
use trace::{
    Iteration, KernelId, Role, Tensor, TensorId,
    draft::{Draft, DraftKernel},
};

const MIB: u64 = 1 << 20;
const MS: u64 = 1_000_000;

/// Iteration of tensors with sizes in MiB, of which the first are persistent, and kernels by
/// duration, inputs and outputs.
fn iteration(mib: &[u64], persistent: usize, kernels: &[(u64, &[u32], &[u32])]) -> Iteration {
    let mut draft = Draft::default();
    for (index, mib) in mib.iter().enumerate() {
        let persistent = index < persistent;
        draft.tensor(Tensor { name: String::new(), bytes: mib * MIB, role: Role::Other, persistent });
    }
    for &(duration_ns, inputs, outputs) in kernels {
        let ids = |list: &[u32]| list.iter().copied().map(TensorId).collect();
        let (inputs, outputs) = (ids(inputs), ids(outputs));
        draft.kernel(DraftKernel { name: String::new(), duration_ns, inputs, outputs });
    }
    draft.check().unwrap()
}

fn act(begin: u32, tensor: u32, act: Act) -> Action {
    Action { begin: KernelId(begin), tensor: TensorId(tensor), act, part: None, done_before: None }
}

fn machine() -> Machine {
    Machine::named("a100").unwrap()
}

fn with(gpu_mib: u64, machine: &Machine) -> Setup<'_> {
    Setup { gpu_bytes: gpu_mib * MIB, ..Setup::new(machine) }
}

#[test]
fn a_stream_larger_than_memory_is_copied_completely_both_ways_in_every_pass() {
    let iteration = iteration(&[256], 1, &[(MS, &[0], &[])]);
    let machine = machine();
    let outcome = driver(&iteration, &Setup { iterations: 3, ..with(128, &machine) }).unwrap();
    assert_eq!((outcome.bytes_htod, outcome.bytes_dtoh), (256 * MIB, 256 * MIB));
    // Two batches per block: threads reach 13 granules, which prefetch 16, half of it; another 13
    // prefetch the rest.
    assert_eq!((outcome.fault_batches, outcome.faults), (256, 256 * 13 * 16));
    assert_eq!(outcome.peak_bytes, 128 * MIB);
}

#[test]
fn first_touches_are_not_copied() {
    let iteration = iteration(&[32], 0, &[(MS, &[], &[0])]);
    let machine = machine();
    let outcome = driver(&iteration, &Setup { iterations: 1, ..with(128, &machine) }).unwrap();
    assert_eq!((outcome.bytes_htod, outcome.bytes_dtoh), (0, 0));
    assert!(outcome.faults > 0 && outcome.stall_s > 0.0);
}

#[test]
fn tensors_that_arrive_in_time_cost_nothing() {
    // Tensors 1 and 2 alternate. Each is migrated while the other is in use, and leaves afterwards.
    let iteration = iteration(&[2, 96, 96], 3, &[(6 * MS, &[0, 1], &[]), (6 * MS, &[0, 2], &[])]);
    let machine = machine();
    let setup = Setup { iterations: 4, ..with(204, &machine) };
    let moved = driver(&iteration, &Setup { gpu_bytes: 128 * MIB, ..setup.clone() }).unwrap();
    assert!(moved.stall_s > 0.01, "{moved:?}");
    let turns = [
        act(0, 2, Act::Move(Tier::Host)),
        act(0, 2, Act::Move(Tier::Gpu)),
        act(1, 1, Act::Move(Tier::Host)),
        act(1, 1, Act::Move(Tier::Gpu)),
    ];
    let outcome = planned(&iteration, &setup, &Schedule::new(turns.to_vec())).unwrap();
    assert_eq!((outcome.faults, outcome.bytes_htod, outcome.bytes_dtoh), (0, 192 * MIB, 192 * MIB));
    assert!(outcome.stall_s < 1e-9, "{outcome:?}");
}

#[test]
fn granules_evicted_before_a_kernel_reaches_them_fault_again() {
    // While a slow kernel reads the resident tensor 0, tensor 1 arrives and evicts it.
    let iteration = iteration(&[40, 60], 2, &[(0, &[0], &[]), (1000 * MS, &[0], &[])]);
    let machine = machine();
    let setup = Setup { iterations: 1, ..with(64, &machine) };
    let alone = driver(&iteration, &setup).unwrap();
    assert_eq!(alone.bytes_htod, 40 * MIB);
    let schedule = Schedule::new(vec![act(1, 1, Act::Move(Tier::Gpu))]);
    let outcome = planned(&iteration, &setup, &schedule).unwrap();
    assert!(outcome.bytes_htod >= (40 + 60 + 34) * MIB, "{outcome:?}");
}

/// Forward and backward pass over four activations, each written in one and read in the other.
fn passes() -> Iteration {
    iteration(
        &[32, 48, 48, 48, 48],
        1,
        &[
            (MS, &[0], &[1]),
            (MS, &[0, 1], &[2]),
            (MS, &[0, 2], &[3]),
            (MS, &[0, 3], &[4]),
            (MS, &[0, 4], &[]),
            (MS, &[0, 3], &[]),
            (MS, &[0, 2], &[]),
            (MS, &[0, 1], &[]),
        ],
    )
}

fn total(outcome: &Outcome) -> u64 {
    outcome.bytes_htod + outcome.bytes_dtoh
}

#[test]
fn dead_contents_are_migrated_unless_they_are_dropped() {
    let (iteration, machine) = (passes(), machine());
    let setup = with(128, &machine);
    let cached = driver(&iteration, &setup).unwrap();
    let drops = [act(5, 4, Act::Drop), act(6, 3, Act::Drop), act(7, 2, Act::Drop), act(8, 1, Act::Drop)];
    let dropped = planned(&iteration, &setup, &Schedule::new(drops.to_vec())).unwrap();
    let released = driver(&iteration, &Setup { freed: Freed::Released, ..setup.clone() }).unwrap();
    assert!(total(&dropped) < total(&cached), "{dropped:?} {cached:?}");
    assert_eq!(dropped.bytes_htod, released.bytes_htod);
}

#[test]
fn a_schedule_that_drops_data_still_read_is_rejected() {
    let (iteration, machine) = (passes(), machine());
    let outcome = planned(&iteration, &with(128, &machine), &Schedule::new(vec![act(4, 2, Act::Drop)]));
    assert_eq!(outcome, Err(RunError::ContentsDropped { kernel: KernelId(6), tensor: TensorId(2) }));
}

#[test]
fn memory_that_does_not_fit_the_host_goes_to_flash_and_takes_time() {
    let (iteration, machine) = (passes(), machine());
    let setup = with(128, &machine);
    let large_host = driver(&iteration, &setup).unwrap();
    assert_eq!((large_host.bytes_ssd_read, large_host.bytes_ssd_written), (0, 0));
    let small_host = driver(&iteration, &Setup { host_bytes: 16 * MIB, ..setup }).unwrap();
    assert!(small_host.bytes_ssd_read > 0 && small_host.bytes_ssd_written > 0);
    assert!(small_host.time_s > large_host.time_s);
}

#[test]
fn memory_too_small_for_a_batch_and_no_iterations_are_rejected() {
    let (iteration, machine) = (passes(), machine());
    let too_small = driver(&iteration, &with(7, &machine));
    assert_eq!(too_small, Err(RunError::TooLittleMemory { gpu_bytes: 7 * MIB }));
    let none = driver(&iteration, &Setup { iterations: 0, ..with(8, &machine) });
    assert_eq!(none, Err(RunError::NoIterations));
}

#[test]
fn threads_with_resident_data_continue_while_others_wait() {
    // All but 2 MiB of a slow kernel's data are resident: their migration overlaps the rest.
    let iteration = iteration(&[64, 2], 2, &[(0, &[0], &[]), (100 * MS, &[0, 1], &[])]);
    let machine = machine();
    let narrow = Setup { iterations: 1, ..with(128, &machine) };
    let wide = Setup { bytes_per_thread: 4096, ..narrow.clone() };
    let kernel_s = |setup| driver(&iteration, setup).unwrap().stall_s;
    assert!(kernel_s(&wide) < kernel_s(&narrow));
}

#[test]
fn operands_of_the_next_kernels_are_not_evicted_for_moves_if_the_schedule_protects_them() {
    // Tensor 2 is to arrive while kernel 1 runs. Tensor 0 arrived before 1, and kernel 2 uses it.
    let kernels: [(u64, &[u32], &[u32]); 4] =
        [(MS, &[0, 1], &[]), (20 * MS, &[1], &[]), (MS, &[0], &[]), (MS, &[2], &[])];
    let iteration = iteration(&[48, 40, 40], 3, &kernels);
    let machine = machine();
    let setup = Setup { iterations: 4, ..with(96, &machine) };
    let leaves = Action { done_before: Some(KernelId(0)), ..act(4, 2, Act::Move(Tier::Host)) };
    let schedule = Schedule::new(vec![leaves, act(1, 2, Act::Move(Tier::Gpu))]);
    let protected = planned(&iteration, &setup, &schedule.clone().keeping(2)).unwrap();
    let unprotected = planned(&iteration, &setup, &schedule).unwrap();
    assert!(protected.bytes_htod + 20 * MIB < unprotected.bytes_htod, "{protected:?} {unprotected:?}");
}

#[test]
fn a_part_is_moved_alone_and_a_kernel_waits_for_all_parts() {
    // Tensor 0 is idle while tensor 1 is in use; 6 MiB of it leave, and return in two parts.
    let iteration = iteration(&[20, 20], 2, &[(6 * MS, &[0], &[]), (6 * MS, &[1], &[]), (6 * MS, &[1], &[])]);
    let part = |from: u64, to: u64| Some(Part { from_bytes: from * MIB, to_bytes: to * MIB });
    let actions = [
        Action { part: part(14, 20), ..act(1, 0, Act::Move(Tier::Host)) },
        Action { part: part(14, 16), ..act(2, 0, Act::Move(Tier::Gpu)) },
        Action { part: part(16, 20), ..act(0, 0, Act::Move(Tier::Gpu)) },
    ];
    let machine = machine();
    let outcome =
        planned(&iteration, &Setup { iterations: 3, ..with(128, &machine) }, &Schedule::new(actions.to_vec())).unwrap();
    assert_eq!((outcome.faults, outcome.bytes_htod, outcome.bytes_dtoh), (0, 6 * MIB, 6 * MIB));
    // Only the last part arrives too late.
    let link_s = 4.0 * MIB as f64 / machine.link_to_gpu.peak_bytes_per_s.value;
    assert!(outcome.stall_s > link_s && outcome.stall_s < 2.0 * link_s, "{outcome:?}");
}

/// Iteration that writes and reads tensor 0, then tensors 1 (of `mib` MiB) and 2.
fn second_generation(mib: u64) -> Iteration {
    let kernels: [(u64, &[u32], &[u32]); 4] =
        [(MS, &[], &[0]), (MS, &[0], &[]), (MS, &[], &[1, 2]), (MS, &[1, 2], &[])];
    iteration(&[16, mib, 8], 0, &kernels)
}

#[test]
fn memory_that_is_handed_on_is_not_populated_again() {
    let (iteration, machine) = (second_generation(8), machine());
    let setup = with(128, &machine);
    let first = act(0, 0, Act::Allocate);
    let drop = act(2, 0, Act::Drop);
    let fresh = Schedule::new(vec![first, drop, act(2, 1, Act::Allocate), act(2, 2, Act::Allocate)]);
    let handed = Schedule::new(vec![first, act(2, 0, Act::HandOn(TensorId(1))), act(2, 0, Act::HandOn(TensorId(2)))]);
    let [fresh, handed] = [fresh, handed].map(|schedule| planned(&iteration, &setup, &schedule).unwrap());
    assert_eq!((handed.faults, handed.bytes_htod, handed.bytes_dtoh), (0, 0, 0));
    assert_eq!(handed.peak_bytes, 16 * MIB);
    // Eight blocks of 2 us, and the call.
    assert!(fresh.stall_s - handed.stall_s > 16e-6, "{fresh:?} and {handed:?}");
}

#[test]
fn memory_is_handed_on_only_from_dead_to_new_tensors_that_fit() {
    let machine = machine();
    let setup = with(128, &machine);
    let hand_on = |begin: u32, dead: u32, born: u32| act(begin, dead, Act::HandOn(TensorId(born)));
    let run = |iteration: &Iteration, actions: &[Action]| planned(iteration, &setup, &Schedule::new(actions.to_vec()));
    let rejected =
        |iteration: &Iteration, actions: &[Action]| matches!(run(iteration, actions), Err(RunError::HandedOn { .. }));
    let fits = second_generation(8);
    assert!(run(&fits, &[hand_on(2, 0, 1)]).is_ok());
    assert!(rejected(&fits, &[hand_on(1, 0, 1)]), "not dead yet");
    assert!(rejected(&fits, &[hand_on(3, 0, 1)]), "dead for long");
    assert!(rejected(&fits, &[hand_on(4, 1, 0)]), "born before");
    assert!(rejected(&fits, &[hand_on(2, 0, 1), hand_on(2, 0, 1)]), "there already");
    assert!(rejected(&second_generation(18), &[hand_on(2, 0, 1)]), "larger");
    assert!(rejected(&second_generation(10), &[hand_on(2, 0, 1), hand_on(2, 0, 2)]), "larger than what is left");
}

#[test]
fn cpu_writes_beyond_host_memory_are_read_from_flash() {
    let iteration = iteration(&[64, 64, 64], 3, &[(MS, &[0], &[]), (MS, &[1], &[]), (MS, &[2], &[])]);
    let machine = machine();
    let setup = Setup { host_bytes: 32 * MIB, iterations: 1, ..with(512, &machine) };
    let outcome = driver(&iteration, &setup).unwrap();
    assert_eq!((outcome.bytes_ssd_read, outcome.bytes_htod), (160 * MIB, 192 * MIB));
    assert!(outcome.time_s >= (160 * MIB) as f64 / machine.flash_read.bytes_per_s.value);
}

#[test]
fn flash_reads_wait_for_the_end_of_the_write() {
    let iteration = iteration(&[64], 0, &[(MS, &[0], &[])]);
    let machine = machine();
    let setup = Setup { host_bytes: 0, ..with(512, &machine) };
    let outcome = driver(&iteration, &setup).unwrap();
    assert_eq!((outcome.bytes_ssd_written, outcome.bytes_ssd_read), (64 * MIB, 64 * MIB));
    assert!(outcome.time_s >= (64 * MIB) as f64 / machine.flash_write.bytes_per_s.value);
}
