use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;
/// Duration of an iteration: with 5 s, blocks have four of them.
const ITERATION_NS: u64 = 5_000_000_000;

/// Faults of an iteration without a plan, or with a plan that does not affect faults.
const FAULTS_WITHOUT: u64 = 500;

/// Program with given bytes and faults per iteration, without and with a plan.
struct Program {
    trial: Trial,
    iteration: u64,
    link_bytes: u64,
    faults: u64,
    faults_with: u64,
    at_ns: u64,
    is_followed: bool,
    /// Whether each completed iteration followed the plan.
    followed: Vec<bool>,
}

impl Program {
    fn new(iteration_ns: u64) -> Self {
        Self::of(Trial::new(Promise::LinkBytes, iteration_ns), FAULTS_WITHOUT)
    }

    /// Program whose plan promises fewer faults.
    fn with_faults(faults_with: u64) -> Self {
        Self::of(Trial::new(Promise::Faults, ITERATION_NS), faults_with)
    }

    fn of(trial: Trial, faults_with: u64) -> Self {
        let (is_followed, followed) = (false, Vec::new());
        Self { trial, iteration: 7, link_bytes: 12345, faults: 678, faults_with, at_ns: 0, is_followed, followed }
    }

    /// Runs an iteration and reads the counts at its end. The helper adopts a plan at the start of
    /// an iteration.
    fn iterate(&mut self, bytes: impl Fn(bool, u64) -> u64, iteration_ns: u64) -> Assessment {
        self.advance(bytes, iteration_ns);
        self.read()
    }

    /// Runs an iteration without a reading.
    fn advance(&mut self, bytes: impl Fn(bool, u64) -> u64, iteration_ns: u64) {
        self.link_bytes += bytes(self.is_followed, self.iteration);
        self.faults += if self.is_followed { self.faults_with } else { FAULTS_WITHOUT } + self.iteration * 7 % 5;
        self.followed.push(self.is_followed);
        self.is_followed = self.trial.wants_plan();
        self.iteration += 1;
        self.at_ns += iteration_ns;
    }

    fn read(&mut self) -> Assessment {
        let iteration = IterationBegin { number: self.iteration, at_ns: self.at_ns };
        let assessment = self.trial.read(Reading { iteration, link_bytes: self.link_bytes, faults: self.faults });
        // A plan that is withdrawn at the start of an iteration has no effect on that iteration.
        self.is_followed &= self.trial.wants_plan();
        assessment
    }

    /// Runs until the trial ends; fails after `most` iterations.
    fn run(&mut self, bytes: impl Fn(bool, u64) -> u64, most: u64) -> Assessment {
        for _ in 0..most {
            match self.iterate(&bytes, ITERATION_NS) {
                Assessment::Pending | Assessment::Measured => {}
                end => return end,
            }
        }
        panic!("no end within {most} iterations: {:?}", self.trial);
    }
}

#[test]
fn helpful_plan_is_confirmed_after_eight_blocks_with_the_first_iteration_of_each_uncounted() {
    let mut program = Program::new(ITERATION_NS);
    assert_eq!(program.run(|is_with, _| if is_with { 52 * MIB } else { 84 * MIB }, 40), Assessment::Confirmed);
    // One before the first reading, the rest of the next, and eight blocks.
    assert_eq!(program.iteration - 7, 2 + 32);
    let (without, with) = program.trial.figures();
    assert_eq!((without.iterations, with.iterations), (12, 12));
    assert_eq!((without.link_bytes, with.link_bytes), (Some(84 * MIB), Some(52 * MIB)));
    assert!(program.trial.p_value().is_some_and(|p| (p - 1.0 / 70.0).abs() < 1e-12));
    let arms: Vec<bool> = program.followed[2..].chunks(4).map(|block| block[0]).collect();
    assert_eq!(arms, [false, true, true, false, true, false, false, true]);
    assert!(program.followed[2..].chunks(4).all(|block| block.iter().all(|each| *each == block[0])));
}

/// Trial with iterations of this duration, and a reading after every `reading_interval` iterations.
fn trial_of(
    estimate_ns: u64,
    iteration_ns: u64,
    reading_interval: u64,
    bytes: impl Fn(bool) -> u64,
) -> (Assessment, Program) {
    let mut program = Program::new(estimate_ns);
    for _ in 0..1_000_000 / reading_interval {
        (0..reading_interval).for_each(|_| program.advance(|is_with, _| bytes(is_with), iteration_ns));
        match program.read() {
            Assessment::Pending | Assessment::Measured => {}
            end => return (end, program),
        }
    }
    panic!("no end: {:?}", program.trial);
}

#[test]
fn block_duration_is_independent_of_the_first_estimate() {
    const MS: u64 = 1_000_000;
    let helpful = |is_with| if is_with { 52 * MIB } else { 84 * MIB };
    for (estimate_ns, iteration_ns, reading_interval) in [
        (2 * MS, 1_000 * MS, 1),
        (0, 1_000 * MS, 1),
        (10_000 * MS, 20 * MS, 5),
        (10_000 * MS, 2 * MS, 50),
        (MS, 35_000 * MS, 1),
    ] {
        let (assessment, program) = trial_of(estimate_ns, iteration_ns, reading_interval, helpful);
        assert_eq!(assessment, Assessment::Confirmed, "{estimate_ns} {iteration_ns}");
        let blocks = program.at_ns as f64 / (BLOCK_NS as f64).max(4.0 * iteration_ns as f64);
        assert!(blocks < 14.0, "the trial took {blocks} blocks: {estimate_ns} {iteration_ns}");
        let (assessment, program) =
            trial_of(estimate_ns, iteration_ns, reading_interval, |is_with| if is_with { 150 * MIB } else { 84 * MIB });
        assert!(matches!(assessment, Assessment::Failed(_)), "{estimate_ns} {iteration_ns}");
        let blocks = program.at_ns as f64 / (BLOCK_NS as f64).max(4.0 * iteration_ns as f64);
        assert!(blocks < 8.0, "a harmful plan failed after {blocks} blocks: {estimate_ns} {iteration_ns}");
    }
}

#[test]
fn trial_with_unmeasurable_iterations_is_abandoned() {
    let mut program = Program::new(ITERATION_NS);
    for _ in 0..200 {
        for (iterations, iteration_ns) in [(1, ITERATION_NS), (5_000, ITERATION_NS / 5_000)] {
            (0..iterations).for_each(|_| program.advance(|_, _| 84 * MIB, iteration_ns));
            match program.read() {
                Assessment::Pending | Assessment::Measured => {}
                end => return assert_eq!(end, Assessment::Unmeasurable),
            }
        }
    }
    panic!("no end: {:?}", program.trial);
}

#[test]
fn confirmed_plan_is_not_rolled_back_for_one_bad_block() {
    let mut program = Program::new(ITERATION_NS);
    program.run(|is_with, _| if is_with { 52 * MIB } else { 84 * MIB }, 40);
    for at in 0..40 {
        let is_bad = (8..12).contains(&at);
        let assessment = program.iterate(|_, _| if is_bad { 120 * MIB } else { 52 * MIB }, ITERATION_NS);
        assert!(matches!(assessment, Assessment::Pending | Assessment::Measured), "{assessment:?}");
    }
}

#[test]
fn confirmed_plan_stays_until_it_harms() {
    let mut program = Program::new(ITERATION_NS);
    program.run(|is_with, _| if is_with { 52 * MIB } else { 84 * MIB }, 40);
    for _ in 0..40 {
        assert!(matches!(program.iterate(|_, _| 52 * MIB, ITERATION_NS), Assessment::Pending | Assessment::Measured));
        assert!(program.trial.wants_plan());
    }
    let Assessment::Failed(why) = program.run(|_, _| 120 * MIB, 12) else { panic!("it harms") };
    assert!(why.contains("120.0 MiB"), "{why}");
}

#[test]
fn harmful_plan_is_detected_within_its_first_block() {
    let mut program = Program::new(ITERATION_NS);
    let end = program.run(|is_with, _| if is_with { 100 * MIB } else { 84 * MIB }, 40);
    assert!(matches!(end, Assessment::Failed(_)));
    assert!(program.followed.iter().filter(|is_with| **is_with).count() <= 4, "{:?}", program.followed);
}

#[test]
fn plan_without_effect_is_not_confirmed() {
    let mut program = Program::new(ITERATION_NS);
    let noise = |_, iteration: u64| (84 + iteration * 7 % 5) * MIB;
    let Assessment::Failed(why) = program.run(noise, 40) else { panic!("there is no difference") };
    assert!(why.contains("p = "), "{why}");
}

#[test]
fn benefit_below_three_percent_is_not_confirmed() {
    let mut program = Program::new(ITERATION_NS);
    assert!(matches!(program.run(|is_with, _| if is_with { 980 } else { 1000 }, 40), Assessment::Failed(_)));
}

#[test]
fn plan_that_promises_fewer_faults_is_confirmed_at_equal_link_bytes() {
    let mut program = Program::with_faults(FAULTS_WITHOUT / 2);
    assert_eq!(program.run(|_, _| 84 * MIB, 40), Assessment::Confirmed);
    let (without, with) = program.trial.figures();
    let is_about = |faults: Option<u64>, expected: u64| faults.is_some_and(|faults| faults.abs_diff(expected) < 5);
    assert!(
        is_about(without.faults, FAULTS_WITHOUT) && is_about(with.faults, FAULTS_WITHOUT / 2),
        "{without:?} {with:?}"
    );
    assert_eq!((without.link_bytes, with.link_bytes), (Some(84 * MIB), Some(84 * MIB)));
    assert!(program.trial.p_value().is_some_and(|p| (p - 1.0 / 70.0).abs() < 1e-12));
}

#[test]
fn plan_that_promises_fewer_faults_is_not_confirmed_by_fewer_bytes_or_too_small_savings() {
    for faults_with in [FAULTS_WITHOUT, FAULTS_WITHOUT * 92 / 100] {
        let mut program = Program::with_faults(faults_with);
        let end = program.run(|is_with, _| if is_with { 52 * MIB } else { 84 * MIB }, 40);
        let Assessment::Failed(why) = end else { panic!("{end:?}") };
        assert!(why.contains("GPU faults: p = "), "{why}");
    }
    let mut program = Program::with_faults(FAULTS_WITHOUT * 85 / 100);
    assert_eq!(program.run(|_, _| 84 * MIB, 40), Assessment::Confirmed);
}

#[test]
fn plan_that_has_fewer_faults_and_more_bytes_harms() {
    let mut program = Program::with_faults(0);
    let Assessment::Failed(why) = program.run(|is_with, _| if is_with { 100 * MIB } else { 84 * MIB }, 40) else {
        panic!("it copies more")
    };
    assert!(why.contains("100.0 MiB"), "{why}");
    assert!(program.followed.iter().filter(|is_with| **is_with).count() <= 4, "{:?}", program.followed);
}

#[test]
fn confirmed_plan_with_more_faults_than_without_it_is_rolled_back() {
    let mut program = Program::with_faults(FAULTS_WITHOUT / 2);
    assert_eq!(program.run(|_, _| 84 * MIB, 40), Assessment::Confirmed);
    // The number of faults without the plan is no harm yet.
    program.faults_with = FAULTS_WITHOUT;
    for _ in 0..40 {
        assert!(matches!(program.iterate(|_, _| 84 * MIB, ITERATION_NS), Assessment::Pending | Assessment::Measured));
    }
    program.faults_with = FAULTS_WITHOUT * 2;
    let Assessment::Failed(why) = program.run(|_, _| 84 * MIB, 16) else { panic!("it harms") };
    assert!(why.contains("GPU faults each"), "{why}");
}

#[test]
fn plan_on_trial_may_have_more_faults_until_it_is_judged() {
    let mut program = Program::with_faults(FAULTS_WITHOUT * 2);
    let Assessment::Failed(why) = program.run(|_, _| 84 * MIB, 40) else { panic!("there is no benefit") };
    assert!(why.contains("p = "), "{why}");
}

#[test]
fn plan_with_longer_iterations_is_not_confirmed() {
    let mut program = Program::new(ITERATION_NS);
    let end = loop {
        let is_with = program.is_followed;
        let bytes = |is_with, _| if is_with { 52 * MIB } else { 84 * MIB };
        match program.iterate(bytes, if is_with { ITERATION_NS * 2 } else { ITERATION_NS }) {
            Assessment::Pending | Assessment::Measured => {}
            end => break end,
        }
    };
    let Assessment::Failed(why) = end else { panic!("it takes twice as long") };
    assert!(why.contains("took"), "{why}");
}

#[test]
fn confirmed_plan_with_longer_iterations_is_rolled_back_if_launches_wait() {
    let bytes = |is_with, _| if is_with { 52 * MIB } else { 84 * MIB };
    let mut program = Program::new(ITERATION_NS);
    assert_eq!(program.run(bytes, 40), Assessment::Confirmed);
    for _ in 0..40 {
        assert!(matches!(program.iterate(bytes, ITERATION_NS * 2), Assessment::Pending | Assessment::Measured));
    }
    let mut program = Program::new(ITERATION_NS);
    program.trial = program.trial.with_waiting_launches();
    assert_eq!(program.run(bytes, 40), Assessment::Confirmed);
    let end = loop {
        match program.iterate(bytes, ITERATION_NS * 2) {
            Assessment::Pending | Assessment::Measured => {}
            end => break end,
        }
    };
    let Assessment::Failed(why) = end else { panic!("it takes twice as long") };
    assert!(why.contains("with the plan took"), "{why}");
}

#[test]
fn blocks_of_short_iterations_last_long_enough_for_readings() {
    let trial = Trial::new(Promise::LinkBytes, 10_000_000);
    assert_eq!(trial.length, 400);
    assert_eq!(Trial::new(Promise::LinkBytes, 0).length % BLOCK_ITERATIONS, 0);
    assert_eq!(Trial::new(Promise::LinkBytes, u64::MAX).length, BLOCK_ITERATIONS);
}

#[test]
fn stall_in_a_block_does_not_make_a_plan_that_saves_harmful() {
    const MS: u64 = 1_000_000;
    let mut program = Program::new(100 * MS);
    for _ in 0..1000 {
        let is_third = program.trial.begin.is_some_and(|begin| program.iteration == begin + 2);
        let stalls = program.trial.block == 1 && is_third;
        let bytes = |is_with, _| if is_with { 90 * MIB } else { 100 * MIB };
        match program.iterate(bytes, if stalls { 2100 * MS } else { 100 * MS }) {
            Assessment::Pending | Assessment::Measured => {}
            end => return assert_eq!(end, Assessment::Confirmed),
        }
    }
    panic!("no end: {:?}", program.trial);
}

#[test]
fn block_read_too_late_is_repeated() {
    let mut program = Program::new(ITERATION_NS);
    let bytes = |is_with, _| if is_with { 52 * MIB } else { 84 * MIB };
    for _ in 0..4 {
        program.iterate(bytes, ITERATION_NS);
    }
    // Three iterations without a reading.
    program.iteration += 3;
    program.link_bytes += 3 * 84 * MIB;
    program.iterate(bytes, ITERATION_NS);
    assert_eq!(program.trial.blocks(), 0);
    assert_eq!(program.run(bytes, 40), Assessment::Confirmed);
    assert_eq!(program.trial.figures().0.link_bytes, Some(84 * MIB));
}

#[test]
fn reset_counts_restart_the_block() {
    let mut program = Program::new(ITERATION_NS);
    let bytes = |is_with, _| if is_with { 52 * MIB } else { 84 * MIB };
    for _ in 0..4 {
        program.iterate(bytes, ITERATION_NS);
    }
    program.link_bytes = 0;
    assert_eq!(program.iterate(bytes, ITERATION_NS), Assessment::Pending);
    assert_eq!(program.run(bytes, 40), Assessment::Confirmed);
}

proptest! {
    #[test]
    fn plan_that_saves_in_each_iteration_is_never_harm(
        // Iterations in which the program stalls, and for how long.
        stalls in prop::collection::btree_map(7_u64..400, 0..8_000_000_000_u64, 0..5),
        reading_interval in 1_u64..4,
    ) {
        let mut program = Program::new(100_000_000);
        while program.iteration < 400 {
            for _ in 0..reading_interval {
                let stall_ns = stalls.get(&program.iteration).copied().unwrap_or_default();
                program.advance(|is_with, _| if is_with { 98 * MIB } else { 100 * MIB }, 100_000_000 + stall_ns);
            }
            match program.read() {
                Assessment::Pending | Assessment::Measured => {}
                Assessment::Failed(why) => {
                    prop_assert!(!why.starts_with("a block of iterations with the plan"), "{why}");
                    break;
                }
                Assessment::Confirmed | Assessment::Unmeasurable => break,
            }
        }
    }

    /// Any readings: no panic, bounded state, and confirmation only with the required benefit.
    #[test]
    fn any_readings_end_without_panic_and_confirm_only_benefits(
        promise in prop::sample::select(vec![Promise::LinkBytes, Promise::Faults]),
        duration_ns in any::<u64>(),
        readings in proptest::collection::vec((0_u64..6, any::<u64>(), any::<u64>(), any::<u64>()), 0..600),
    ) {
        let mut trial = Trial::new(promise, duration_ns);
        let mut number = 0_u64;
        for (more, at_ns, link_bytes, faults) in readings {
            number += more;
            let assessment = trial.read(Reading { iteration: IterationBegin { number, at_ns }, link_bytes, faults });
            prop_assert!(trial.blocks() <= 2 * ORDER.len() as u64);
            prop_assert!(trial.with.samples.len() <= SAMPLES_MAX && trial.without.samples.len() <= SAMPLES_MAX);
            if assessment == Assessment::Confirmed {
                let Benefit { figure: Figure { value, .. }, saved_min } = Benefit::of(promise);
                prop_assert!(trial.with.mean(value).unwrap() <= trial.without.mean(value).unwrap() * (1.0 - saved_min));
            }
            if matches!(assessment, Assessment::Failed(_)) {
                break;
            }
        }
    }

    /// A benefit beyond the spread is detected at any level.
    #[test]
    fn clear_benefit_is_confirmed_at_any_level(
        without in 1_u64..1 << 20,
        saved in 0.1_f64..0.9,
        spread in prop::array::uniform32(0.0_f64..0.02),
    ) {
        let mut program = Program::new(ITERATION_NS);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bytes")]
        let bytes = |is_with, iteration: u64| {
            let level = if is_with { 1.0 - saved } else { 1.0 };
            (1e6 * without as f64 * level * (1.0 + spread[iteration as usize % 32])) as u64
        };
        prop_assert_eq!(program.run(bytes, 40), Assessment::Confirmed);
    }
}
