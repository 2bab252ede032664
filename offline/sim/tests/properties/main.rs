//! Properties of all iterations and schedules, tested on random ones. The audit of each run uses
//! the model's events alone.

mod audit;
mod random;

use audit::Audit;
use planner::Schedule;
use random::{Dice, iteration, schedule};
use sim::{Event, Freed, Machine, Setup, driver, ideal, observed, planned};

const MIB: u64 = 1 << 20;
const ROUNDS: u64 = 30;

fn setups(machine: &Machine) -> Vec<Setup<'_>> {
    let small = Setup { gpu_bytes: 96 * MIB, iterations: 3, ..Setup::new(machine) };
    let little_host = Setup { host_bytes: 64 * MIB, ..small.clone() };
    let released = Setup { freed: Freed::Released, ..small.clone() };
    let wide = Setup { bytes_per_thread: 256, ..small.clone() };
    vec![small, little_host, released, wide]
}

#[test]
fn capacity_is_never_exceeded_no_memory_is_used_before_it_arrives_and_no_data_are_lost() {
    let machine = Machine::named("a100").unwrap();
    let (mut moved, mut flash) = (0, 0);
    for round in 0..12 {
        let mut dice = Dice::new(round);
        let iteration = iteration(&mut dice);
        for setup in setups(&machine) {
            for schedule in [Schedule::default(), schedule(&mut dice, &iteration)] {
                let mut audit = Audit::new(&iteration);
                let mut observer = |event: Event| audit.record(event);
                let outcome = observed(&iteration, &setup, &schedule, &mut observer).unwrap();
                assert!(audit.max_blocks() * 2 * MIB <= setup.gpu_bytes, "round {round}: {}", audit.max_blocks());
                assert!(outcome.peak_bytes <= setup.gpu_bytes);
                assert!(audit.max_host_bytes() <= setup.host_bytes, "{} on the host", audit.max_host_bytes());
                assert_eq!(audit.kernels(), iteration.kernels().len() * 3);
                moved += outcome.bytes_dtoh;
                flash += outcome.bytes_ssd_read;
            }
        }
    }
    assert!(moved > 10 << 30 && flash > 1 << 30, "{moved} and {flash} bytes: too little for the test");
}

#[test]
fn no_planner_exceeds_capacity_or_loses_data() {
    let machine = Machine::named("a100").unwrap();
    let mut planned = std::collections::BTreeMap::new();
    for round in 0..4 {
        let iteration = iteration(&mut Dice::new(round));
        for setup in setups(&machine) {
            for planner in planner::all() {
                // Some memory is too small for any schedule of whole tensors.
                let Ok(schedule) = planner.plan(&iteration, &setup.for_planners_within(setup.gpu_bytes)) else {
                    continue;
                };
                let mut audit = Audit::new(&iteration);
                let mut observer = |event: Event| audit.record(event);
                let outcome = observed(&iteration, &setup, &schedule, &mut observer).unwrap();
                assert!(audit.max_blocks() * 2 * MIB <= setup.gpu_bytes, "{} in round {round}", planner.name());
                assert!(outcome.peak_bytes <= setup.gpu_bytes);
                assert!(audit.max_host_bytes() <= setup.host_bytes, "{} on the host", audit.max_host_bytes());
                assert_eq!(audit.kernels(), iteration.kernels().len() * 3);
                *planned.entry(planner.name()).or_default() += schedule.actions().len();
            }
        }
    }
    for planner in planner::all() {
        assert!(planned.get(planner.name()).is_some_and(|&actions: &usize| actions > 100), "{planned:?}");
    }
}

#[test]
fn no_time_is_below_that_of_kernels_link_or_flash() {
    let machine = Machine::named("h200").unwrap();
    let mut on_flash = 0;
    for round in 0..ROUNDS {
        let mut dice = Dice::new(round);
        let iteration = iteration(&mut dice);
        let ideal = ideal(&iteration);
        for setup in setups(&machine) {
            let setup = Setup { iterations: 1, ..setup };
            for schedule in [Schedule::default(), schedule(&mut dice, &iteration)] {
                let outcome = observed(&iteration, &setup, &schedule, &mut |_| {}).unwrap();
                assert!(outcome.time_s >= ideal.time_s);
                // A block in transit at the end may be counted already.
                for (bytes, link) in
                    [(outcome.bytes_htod, &machine.link_to_gpu), (outcome.bytes_dtoh, &machine.link_to_host)]
                {
                    let bound_s = bytes.saturating_sub(2 * MIB) as f64 / link.peak_bytes_per_s.value;
                    assert!(outcome.time_s >= bound_s, "round {round}: {outcome:?}");
                }
                for (bytes, flash) in
                    [(outcome.bytes_ssd_read, &machine.flash_read), (outcome.bytes_ssd_written, &machine.flash_write)]
                {
                    // One block may be in the write, and one waiting for it.
                    let bound_s = bytes.saturating_sub(4 * MIB) as f64 / flash.bytes_per_s.value;
                    assert!(outcome.time_s >= bound_s, "round {round}: {outcome:?}");
                    on_flash += bytes;
                }
            }
        }
    }
    assert!(on_flash > 1 << 30, "{on_flash} bytes: too little for the test");
}

#[test]
fn card_of_four_blocks_runs_any_iteration() {
    let machine = Machine::named("a100").unwrap();
    let setup = Setup { gpu_bytes: 8 * MIB, ..Setup::new(&machine) };
    for round in 0..4 {
        let iteration = iteration(&mut Dice::new(round));
        let mut audit = Audit::new(&iteration);
        let outcome = observed(&iteration, &setup, &Schedule::default(), &mut |event| audit.record(event)).unwrap();
        assert!(audit.max_blocks() <= 4 && outcome.bytes_dtoh > 0, "round {round}: {outcome:?}");
    }
}

#[test]
fn no_schedule_copies_less_than_the_bound() {
    let machine = Machine::named("a100").unwrap();
    let (mut positive, mut nearest) = (0, f64::INFINITY);
    for round in 0..ROUNDS {
        let mut dice = Dice::new(round);
        let iteration = iteration(&mut dice);
        for setup in setups(&machine) {
            let bound = sim::bound_bytes(&iteration, &setup);
            positive += u32::from(bound.to_gpu > 0 && bound.from_gpu > 0);
            let mut schedules = vec![Schedule::default(), schedule(&mut dice, &iteration)];
            let planners = planner::all().into_iter().filter(|planner| planner.name() != "autoswap");
            schedules.extend(planners.filter_map(|planner| planner.plan(&iteration, &setup.for_planners()).ok()));
            for schedule in &schedules {
                let outcome = planned(&iteration, &setup, schedule).unwrap();
                let (to_gpu, from_gpu) = (outcome.bytes_htod, outcome.bytes_dtoh);
                assert!(to_gpu >= bound.to_gpu, "round {round}: {bound:?} and {outcome:?}");
                assert!(from_gpu >= bound.from_gpu, "round {round}: {bound:?} and {outcome:?}");
                if bound.total() > 0 {
                    nearest = nearest.min((to_gpu + from_gpu) as f64 / bound.total() as f64);
                }
            }
        }
    }
    // Kernels here use most of the memory at once, which the bound lets them stream through.
    assert!(positive > 20 && nearest < 4.0, "{positive} bounds, the nearest to {nearest}");
}

#[test]
fn no_schedule_beats_the_bound() {
    let mut machine = Machine::named("a100").unwrap();
    // The link is slow enough to determine the time.
    for link in [&mut machine.link_to_gpu, &mut machine.link_to_host] {
        link.peak_bytes_per_s.value /= 8.0;
    }
    let (mut above_kernels, mut nearest) = (0, f64::INFINITY);
    for round in 0..ROUNDS {
        let mut dice = Dice::new(round);
        let iteration = iteration(&mut dice);
        for setup in setups(&machine) {
            let bound_s = sim::bound_s(&iteration, &setup);
            above_kernels += u32::from(bound_s > 1.1 * ideal(&iteration).time_s);
            let mut schedules = vec![Schedule::default(), schedule(&mut dice, &iteration)];
            let planners = planner::all().into_iter().filter(|planner| planner.name() != "autoswap");
            schedules.extend(planners.filter_map(|planner| planner.plan(&iteration, &setup.for_planners()).ok()));
            for schedule in &schedules {
                let outcome = planned(&iteration, &setup, schedule).unwrap();
                assert!(outcome.time_s >= bound_s, "round {round}: {bound_s} and {outcome:?}");
                nearest = nearest.min(outcome.time_s / bound_s);
            }
        }
    }
    assert!(above_kernels > 20 && nearest < 1.5, "{above_kernels} bounds, the nearest to {nearest}");
}

#[test]
fn the_best_plan_is_no_worse_than_any_planner_and_loses_no_data() {
    let machine = Machine::named("a100").unwrap();
    for round in 0..3 {
        let iteration = iteration(&mut Dice::new(round));
        for setup in setups(&machine) {
            let best = sim::auto_plan(&iteration, &setup).unwrap();
            let mut audit = Audit::new(&iteration);
            let mut observer = |event: Event| audit.record(event);
            assert_eq!(observed(&iteration, &setup, &best.schedule, &mut observer).unwrap(), best.outcome);
            assert!(audit.max_blocks() * 2 * MIB <= setup.gpu_bytes && best.tried > 3);
            assert!(best.outcome.time_s <= driver(&iteration, &setup).unwrap().time_s);
            for planner in planner::all() {
                let Ok(schedule) = planner.plan(&iteration, &setup.for_planners()) else { continue };
                let other = planned(&iteration, &setup, &schedule).unwrap();
                assert!(best.outcome.time_s <= other.time_s, "{} in round {round}", planner.name());
            }
        }
    }
}

#[test]
fn the_same_run_gives_the_same_figures() {
    let machine = Machine::named("gtx1080ti").unwrap();
    for round in 0..ROUNDS {
        let mut dice = Dice::new(round);
        let iteration = iteration(&mut dice);
        let schedule = schedule(&mut dice, &iteration);
        let setup = Setup { gpu_bytes: 96 * MIB, ..Setup::new(&machine) };
        let run = || observed(&iteration, &setup, &schedule, &mut |_| {}).unwrap();
        assert_eq!(run(), run());
    }
}

#[test]
fn a_faster_link_moves_the_same_bytes_in_less_time() {
    let slow = Machine::named("a100").unwrap();
    let mut fast = slow.clone();
    for link in [&mut fast.link_to_gpu, &mut fast.link_to_host] {
        link.peak_bytes_per_s.value *= 4.0;
    }
    for round in 0..ROUNDS {
        let iteration = iteration(&mut Dice::new(round)).with_durations(|_, _| 0).unwrap();
        let run = |machine| driver(&iteration, &Setup { gpu_bytes: 96 * MIB, ..Setup::new(machine) }).unwrap();
        let (slow, fast) = (run(&slow), run(&fast));
        assert_eq!((slow.bytes_htod, slow.bytes_dtoh, slow.faults), (fast.bytes_htod, fast.bytes_dtoh, fast.faults));
        assert!(fast.time_s <= slow.time_s);
    }
}

#[test]
fn an_iteration_that_fits_the_gpu_costs_nothing_from_the_third_on() {
    let machine = Machine::named("gh200").unwrap();
    for round in 0..ROUNDS {
        // Inputs would be copied from the CPU in each iteration.
        let iteration = random::without_inputs(&mut Dice::new(round));
        let setup = Setup { iterations: 3, ..Setup::new(&machine) };
        let outcome = driver(&iteration, &setup).unwrap();
        assert_eq!((outcome.bytes_htod, outcome.bytes_dtoh, outcome.faults), (0, 0, 0), "round {round}");
        assert_eq!(outcome.stall_s.to_bits(), 0);
    }
}
