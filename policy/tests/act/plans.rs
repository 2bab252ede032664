//! Plans that the helper of a program follows: decisions and withdrawals.

use model::{
    Access, ActuatorKind, Budget, Cause, Directive, Expected, Following, FollowingState, IterationBegin, Mode,
    PlanCommand, PlanCounters, PlanReport, PlannedIteration, ProbeFigures, ProbedIteration, ProcessId, Publication,
    Share, Stage, decision::Event, policy::Promise,
};

use crate::{
    program::Program,
    world::{GPU, World, directive},
};

const MIB: u64 = 1 << 20;
/// Intervals per iteration.
const INTERVALS: u64 = 20;

/// Faults per iteration.
const FAULTS: u64 = 2000;

/// Training program with a helper. It copies given numbers of bytes per iteration without and with
/// a plan, half of them in each direction, and has a given number of faults with one.
struct Training {
    world: World,
    id: ProcessId,
    without_bytes: u64,
    with_bytes: u64,
    with_faults: u64,
    /// Ratio of the bytes that the helper reports as moved to the copied bytes.
    excess: u64,
    /// Moves per iteration that expire, unless launches wait until moves are handed over.
    expiring: u64,
    /// Bytes per iteration with a plan whose launches wait.
    waiting_bytes: u64,
    /// Whether the helper requests all moves of an iteration in its first interval.
    requests_at_once: bool,
    interval: u64,
    iteration: u64,
    /// Published plan, which the helper follows from the next iteration on.
    published: Option<Publication>,
    followed: Option<Publication>,
    commands: Vec<PlanCommand>,
}

fn planned(version: u64) -> PlannedIteration {
    PlannedIteration {
        version,
        planner: "foresight",
        launches: 55,
        duration_ns: 2_000_000_000,
        moves: 26,
        to_gpu_bytes: 26 * MIB,
        to_host_bytes: 26 * MIB,
        faulted_bytes: 0,
        evicted_bytes: 0,
        faulted_blocks: 0,
        driver_bytes: 84 * MIB,
        driver_faulted_blocks: 21,
        peak_bytes: 26 * MIB,
        room_bytes: 30 * MIB,
        lead: None,
        coverage_percent: Some(100),
        probes: None,
        ranges: vec![(0x7f00_0000_0000, 0x7f00_0400_0000)],
    }
}

impl Training {
    fn new(directive: Directive, without_bytes: u64, with_bytes: u64) -> Self {
        let mut world = World::new();
        let id = world.add(Program::Idle, 8, Some(directive));
        let following = Following {
            gpu: GPU,
            policy: "auto-plan",
            state: FollowingState::Planned(planned(1)),
            iteration: Some(IterationBegin { number: 0, at_ns: 0 }),
            report: PlanReport::default(),
        };
        world.following.insert(id, following);
        let (published, followed, commands) = (None, None, Vec::new());
        let with_faults = FAULTS;
        Self {
            world,
            id,
            without_bytes,
            with_bytes,
            with_faults,
            excess: 1,
            expiring: 0,
            waiting_bytes: with_bytes,
            requests_at_once: false,
            interval: 0,
            iteration: 0,
            published,
            followed,
            commands,
        }
    }

    fn following(&mut self) -> &mut Following {
        self.world.following.get_mut(&self.id).unwrap()
    }

    fn interval(&mut self) {
        self.interval += 1;
        let is_with = self.followed.is_some();
        let launches_wait = self.followed.is_some_and(|followed| followed.launches_wait);
        let bytes = match (is_with, launches_wait) {
            (true, true) => self.waiting_bytes,
            (true, false) => self.with_bytes,
            (false, _) => self.without_bytes,
        } / INTERVALS;
        let counters = &mut self.world.process(self.id).counters;
        counters.bytes_htod[Cause::Fault] += bytes / 2;
        counters.bytes_dtoh[Cause::Eviction] += bytes - bytes / 2;
        counters.fault_entries[Access::Read] += if is_with { self.with_faults } else { FAULTS } / INTERVALS;
        if is_with {
            let bytes = match (self.requests_at_once, self.interval % INTERVALS) {
                (false, _) => bytes,
                (true, 1) => self.with_bytes,
                (true, _) => 0,
            };
            let excess = self.excess;
            let PlanCounters { moves, to_gpu_bytes, to_host_bytes, .. } = &mut self.following().report.counters;
            *moves += 1;
            *to_gpu_bytes += bytes / 2 * excess;
            *to_host_bytes += bytes / 2 * excess;
        }
        if self.interval.is_multiple_of(INTERVALS) {
            self.iteration += 1;
            let expired = if launches_wait { 0 } else { self.expiring };
            let counters = &mut self.following().report.counters;
            counters.iterations += u64::from(is_with);
            counters.expired += if is_with { expired } else { 0 };
            let begin = IterationBegin { number: self.iteration, at_ns: self.iteration * 2_000_000_000 };
            self.following().iteration = Some(begin);
            self.followed = self.published;
        }
        self.observe();
    }

    /// Whether launches wait, for each published table.
    fn waits(&self) -> Vec<bool> {
        self.commands.iter().filter_map(|command| Some(command.publish?.launches_wait)).collect()
    }

    fn reports_waiting_launches(&self) -> bool {
        self.world.decision().plan.as_ref().unwrap().launches_wait
    }

    /// Version of the published table.
    fn version(&self) -> Option<u64> {
        self.published.map(|published| published.version)
    }

    /// Runs an interval of the loop.
    fn observe(&mut self) {
        self.world.run(0.1);
        for command in self.world.acting.take_plan_commands() {
            self.published = command.publish;
            // A withdrawal takes effect at the next launch.
            self.followed = self.followed.filter(|_| command.publish.is_some());
            self.commands.push(command);
        }
    }

    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds * 10 {
            self.interval();
        }
    }

    fn run_until(&mut self, stage: &str) {
        for _ in 0..2000 {
            if self.world.acting.decisions().next().is_some_and(|decision| decision.stage.name() == stage) {
                return;
            }
            self.interval();
        }
        panic!("{stage} did not come: {:#?}", self.world.acting.decisions().next());
    }

    fn stage(&self) -> &Stage {
        &self.world.decision().stage
    }

    /// Training with a plan of the policy `pump`.
    fn of_pump(with_bytes: u64, with_faults: u64) -> Self {
        let mut training = Self::new(directive(Mode::Act, "pump"), 84 * MIB, with_bytes);
        training.with_faults = with_faults;
        let prefetches = PlannedIteration {
            planner: "pump",
            to_gpu_bytes: 40 * MIB,
            to_host_bytes: 0,
            faulted_bytes: 2 * MIB,
            evicted_bytes: 42 * MIB,
            faulted_blocks: 1,
            ..planned(1)
        };
        *training.following() =
            Following { policy: "pump", state: FollowingState::Planned(prefetches), ..training.following().clone() };
        training
    }

    fn confirmed() -> Self {
        let mut training = Self::new(directive(Mode::Act, "auto-plan"), 84 * MIB, 52 * MIB);
        training.run_until("confirmed");
        training
    }
}

#[test]
fn helpful_plan_is_confirmed_with_its_evidence() {
    let training = Training::confirmed();
    let decision = training.world.decision();
    let evidence = decision.plan.as_ref().unwrap();
    assert_eq!((decision.policy, evidence.planner.as_str(), evidence.blocks), ("auto-plan", "foresight", 8));
    let is_near =
        |bytes: Option<u64>, expected: u64| bytes.is_some_and(|bytes| bytes.abs_diff(expected) < expected / 20);
    assert!(is_near(evidence.without.link_bytes, 84 * MIB), "{evidence:?}");
    assert!(is_near(evidence.with.link_bytes, 52 * MIB), "{evidence:?}");
    assert_eq!((evidence.planned_peak_bytes, evidence.room_bytes), (26 * MIB, 30 * MIB));
    assert!(evidence.p_value.is_some_and(|p| p < 0.05));
    assert!(evidence.counters.moves > 0 && decision.done.calls == evidence.counters.moves);
    assert!(decision.link_bytes_saved().is_some_and(|saved| (saved - 0.38).abs() < 0.05), "{decision:?}");
    assert!(training.published.is_some());
}

#[test]
fn plan_of_pump_is_confirmed_by_its_faults() {
    let mut training = Training::of_pump(84 * MIB, FAULTS / 4);
    training.run_until("confirmed");
    let decision = training.world.decision();
    let evidence = decision.plan.as_ref().unwrap();
    assert_eq!((decision.policy, evidence.promise), ("pump", Promise::Faults));
    assert_eq!((evidence.without.faults, evidence.with.faults), (Some(FAULTS), Some(FAULTS / 4)));
    assert_eq!((evidence.planned_faulted_blocks, evidence.modelled_driver_faulted_blocks), (1, 21));
    assert!(decision.reason.contains("leaves 1 instead of 21 blocks to faults"), "{}", decision.reason);
    assert!(decision.faults_saved().is_some_and(|saved| (saved - 0.75).abs() < 0.05), "{decision:?}");
    assert!(decision.link_bytes_saved().is_some_and(|saved| saved.abs() < 0.05), "{decision:?}");
    assert!(decision.expected.link_bytes_saved.at_most <= 0.0 && decision.expected.faults_saved.at_most > 0.9);
}

#[test]
fn plan_of_pump_with_more_bytes_over_the_link_is_rolled_back_in_its_first_block() {
    let mut training = Training::of_pump(160 * MIB, 0);
    training.run_until("rolled_back");
    assert!(training.iteration <= 1 + 4 + 4, "{}", training.iteration);
    assert_eq!(training.published, None);
}

#[test]
fn plan_of_pump_without_fewer_faults_is_rolled_back_at_the_end_of_its_trial() {
    let mut training = Training::of_pump(52 * MIB, FAULTS);
    training.run_until("rolled_back");
    assert_eq!(training.world.decision().plan.as_ref().unwrap().blocks, 8);
    assert!(training.stage().reason().is_some_and(|why| why.contains("GPU faults: p = ")), "{:?}", training.stage());
}

#[test]
fn control_that_harms_is_rolled_back_in_its_first_block() {
    let mut training = Training::new(directive(Mode::Act, "harmful-plan"), 84 * MIB, 400 * MIB);
    let departures = PlannedIteration {
        planner: "harmful-plan",
        to_gpu_bytes: 0,
        to_host_bytes: 200 * MIB,
        faulted_bytes: 200 * MIB,
        faulted_blocks: 100,
        peak_bytes: 0,
        coverage_percent: None,
        ..planned(1)
    };
    *training.following() = Following {
        policy: "harmful-plan",
        state: FollowingState::Planned(departures),
        ..training.following().clone()
    };
    training.run_until("rolled_back");
    assert!(training.iteration <= 1 + 4 + 4, "{}", training.iteration);
    assert!(training.stage().reason().is_some_and(|why| why.contains("copied")), "{:?}", training.stage());
    let expected = training.world.decision().expected;
    assert!(expected.link_bytes_saved.at_least < -3.0 && expected.link_bytes_saved.at_most <= 0.0, "{expected:?}");
}

#[test]
fn blocks_without_the_plan_have_it_withdrawn() {
    let training = Training::confirmed();
    let published: Vec<bool> = training.commands.iter().map(|command| command.publish.is_some()).collect();
    // A B B A B A A B
    assert_eq!(published, [true, false, true, false, true]);
}

/// Training with a plan of which `moves` moves per iteration expire.
fn expiring(moves: u64, with_bytes: u64, waiting_bytes: u64) -> Training {
    let training = Training::new(directive(Mode::Act, "auto-plan"), 84 * MIB, with_bytes);
    Training { expiring: moves, waiting_bytes, ..training }
}

#[test]
fn launches_wait_for_moves_if_too_many_expire() {
    let mut training = expiring(4, 60 * MIB, 52 * MIB);
    training.run_until("confirmed");
    // The first block with the plan shows the expired moves. Then the trial restarts.
    assert_eq!(training.waits(), [false, true, true, true]);
    let decision = training.world.decision();
    let evidence = decision.plan.as_ref().unwrap();
    assert!(evidence.launches_wait && evidence.blocks == 8, "{evidence:?}");
    let mut updates = training.world.events.iter().filter_map(|event| match event {
        Event::Updated(decision) => decision.plan.as_ref().map(|plan| (decision.pace, plan)),
        _ => None,
    });
    let restarted = updates.find(|(_, plan)| plan.launches_wait).map(|(pace, plan)| (pace, plan.blocks));
    assert_eq!(restarted, Some((None, 0)), "the event follows at once, without results of earlier blocks");
    let with = evidence.with.link_bytes.unwrap();
    assert!(with.abs_diff(52 * MIB) < 2 * MIB, "only iterations whose launches wait count: {with}");
}

#[test]
fn harm_ends_the_plan_also_while_moves_expire_and_the_next_trial_has_waiting_launches() {
    let mut training = expiring(13, 160 * MIB, 52 * MIB);
    training.run_until("rolled_back");
    assert!(training.iteration <= 1 + 4 + 4, "in the first block with the plan: {}", training.iteration);
    assert_eq!((training.waits(), training.published), (vec![false], None));
    training.commands.clear();
    training.run_until("confirmed");
    assert!(training.reports_waiting_launches() && !training.waits().contains(&false));
    assert_eq!(training.world.acting.decisions().count(), 2, "each trial has its own evidence");
}

#[test]
fn launches_do_not_wait_after_both_trials_have_failed() {
    let mut training = expiring(13, 160 * MIB, 160 * MIB);
    for waiting in [false, true, false] {
        training.run_until("rolled_back");
        assert_eq!(training.waits(), [waiting]);
        training.commands.clear();
        training.run_until("trial");
    }
}

#[test]
fn launches_do_not_wait_if_few_moves_expire() {
    let mut training = expiring(1, 53 * MIB, 52 * MIB);
    training.run_until("confirmed");
    assert!(!training.reports_waiting_launches() && !training.waits().contains(&true));
}

#[test]
fn launches_do_not_wait_after_a_failed_trial_with_waits() {
    let mut training = expiring(4, 60 * MIB, 160 * MIB);
    training.run_until("rolled_back");
    assert!(training.reports_waiting_launches());
    training.commands.clear();
    training.run_until("confirmed");
    assert!(!training.reports_waiting_launches() && !training.waits().contains(&true));
}

#[test]
fn harmful_plan_is_rolled_back_in_its_first_block_and_cools_down() {
    let mut training = Training::new(directive(Mode::Act, "auto-plan"), 84 * MIB, 160 * MIB);
    training.run_until("rolled_back");
    assert_eq!(training.published, None);
    assert!(training.iteration <= 1 + 4 + 4, "it is found in the first block with it: {}", training.iteration);
    training.run(25);
    assert_eq!(training.world.acting.decisions().count(), 1, "it rests");
    assert!(training.world.restrictions().iter().any(|restriction| restriction.reason.contains("cool-down")));
    training.run(30);
    assert_eq!(training.world.acting.decisions().count(), 2, "it is tried again");
}

#[test]
fn plan_without_effect_is_rolled_back_at_the_end_of_its_trial() {
    let mut training = Training::new(directive(Mode::Act, "auto-plan"), 84 * MIB, 84 * MIB);
    training.run_until("rolled_back");
    assert_eq!(training.world.decision().plan.as_ref().unwrap().blocks, 8);
    assert_eq!(training.published, None);
}

#[test]
fn shadow_reports_the_plan_and_publishes_no_table() {
    let mut training = Training::new(directive(Mode::Shadow, "auto-plan"), 84 * MIB, 52 * MIB);
    training.run(60);
    assert!(matches!(training.stage(), Stage::Shadow(_)) && training.commands.is_empty());
    assert_eq!(training.world.acting.decisions().count(), 1);
    assert_eq!(training.world.decision().plan.as_ref().unwrap().planned_bytes, 52 * MIB);
}

#[test]
fn kill_switch_withdraws_the_plan_within_an_interval() {
    let mut training = Training::confirmed();
    training.world.acting_enabled = false;
    training.interval();
    assert_eq!(training.published, None);
    training.run(5);
    assert!(matches!(training.stage(), Stage::Shadow(_)), "the plan is reported");
    training.world.acting_enabled = true;
    training.run_until("confirmed");
}

#[test]
fn plan_ends_with_its_override() {
    let mut training = Training::confirmed();
    let id = training.id;
    training.world.directives.remove(&id);
    training.interval();
    assert_eq!(training.published, None);
    assert_eq!(training.stage().reason(), Some("the process no longer has a directive"));
}

#[test]
fn plan_ends_where_another_policy_is_selected() {
    let mut training = Training::confirmed();
    let id = training.id;
    training.world.directives.insert(id, directive(Mode::Act, "ping-pong"));
    training.world.following.clear();
    training.observe();
    assert_eq!(training.published, None);
    assert_eq!(training.stage().name(), "ended");
}

#[test]
fn plan_ends_with_the_iterations_it_was_made_for_and_another_takes_its_place() {
    let mut training = Training::confirmed();
    training.following().state = FollowingState::Watching;
    training.interval();
    assert_eq!((training.published, training.stage().name()), (None, "ended"));
    training.following().state = FollowingState::Planned(planned(2));
    training.run_until("confirmed");
    assert_eq!(training.version(), Some(2));
}

fn probed(publish: Option<u64>) -> ProbedIteration {
    let bytes = if publish.is_some() { 4 * MIB } else { 0 };
    let figures = ProbeFigures { launches: 9, ..ProbeFigures::default() };
    ProbedIteration { publish, to_gpu_bytes: bytes, to_host_bytes: bytes, duration_ns: 2_000_000_000, figures }
}

#[test]
fn tables_of_probes_are_followed_one_by_one_and_withdrawn_before_the_trial() {
    let mut training = Training::new(directive(Mode::Act, "auto-plan"), 84 * MIB, 52 * MIB);
    for (state, published) in [
        (FollowingState::Probing(probed(None)), None),
        (FollowingState::Probing(probed(Some(1))), Some(1)),
        (FollowingState::Probing(probed(None)), None),
        (FollowingState::Probing(probed(Some(2))), Some(2)),
        // The first block of the trial is without the plan.
        (FollowingState::Planned(planned(3)), None),
    ] {
        training.following().state = state;
        training.interval();
        assert_eq!(training.version(), published);
    }
    training.run_until("confirmed");
    assert_eq!(training.version(), Some(3));
}

#[test]
fn probes_end_with_their_iterations_and_with_the_mode() {
    for end in [
        |training: &mut Training| training.following().state = FollowingState::Watching,
        |training: &mut Training| training.following().state = FollowingState::Refused("it fits".to_owned()),
        |training: &mut Training| training.world.acting_enabled = false,
        |training: &mut Training| {
            training.world.directives.insert(training.id, directive(Mode::Shadow, "auto-plan"));
        },
        |training: &mut Training| training.world.following.clear(),
    ] as [fn(&mut Training); 5]
    {
        let mut training = Training::new(directive(Mode::Act, "auto-plan"), 84 * MIB, 52 * MIB);
        training.following().state = FollowingState::Probing(probed(Some(1)));
        training.interval();
        assert_eq!((training.version(), training.waits()), (Some(1), vec![true]));
        end(&mut training);
        training.observe();
        assert_eq!(training.version(), None);
    }
}

#[test]
fn probes_move_no_more_than_the_budget() {
    let budget = Budget { bytes: Some(20 * MIB), ..Budget::default() };
    let limited = Directive { budget, ..directive(Mode::Act, "auto-plan") };
    let mut training = Training::new(limited, 84 * MIB, 84 * MIB);
    training.following().state = FollowingState::Probing(probed(Some(1)));
    training.interval();
    assert_eq!(training.version(), Some(1));
    training.run(20);
    assert_eq!(training.version(), None);
    let moved = training.following().report.counters.bytes();
    assert!((12 * MIB..=20 * MIB).contains(&moved), "less than a table is left: {moved}");
    training.following().state = FollowingState::Probing(ProbedIteration { to_gpu_bytes: 30 * MIB, ..probed(Some(2)) });
    training.interval();
    assert_eq!(training.version(), None, "nor is a larger one");
}

#[test]
fn process_that_claims_moves_of_no_table_uses_up_its_own_bytes_alone() {
    let act = || directive(Mode::Act, "auto-plan");
    for (of_other, publish) in [(act(), Some(1)), (act(), None), (directive(Mode::Shadow, "auto-plan"), Some(1))] {
        let mut training = Training::new(act(), 84 * MIB, 52 * MIB);
        let other = training.world.add(Program::Idle, 8, Some(of_other));
        // The process is charged first.
        training.world.processes.reverse();
        let state = FollowingState::Probing(probed(publish));
        let following = Following { state, ..training.following().clone() };
        training.world.following.insert(other, following);
        // More than the node may move, in each interval.
        let bytes = 8 << 30;
        while !matches!(training.world.acting.decisions().next(), Some(decision) if decision.stage.name() == "confirmed")
        {
            training.world.process(other).counters.bytes_htod[Cause::Fault] += bytes;
            training.world.following.get_mut(&other).unwrap().report.counters.to_gpu_bytes += bytes;
            training.interval();
            assert!(training.interval < 2000, "{:?}", training.stage());
        }
    }
}

#[test]
fn plan_that_the_helper_refuses_is_ended_with_its_reason() {
    let mut training = Training::new(directive(Mode::Act, "auto-plan"), 84 * MIB, 52 * MIB);
    while training.published.is_none() {
        training.interval();
    }
    training.following().report.ended = Some("the helper has refused the plan: advice".to_owned());
    training.interval();
    assert_eq!(training.published, None);
    assert_eq!(training.stage().reason(), Some("the helper has refused the plan: advice"));
}

#[test]
fn decision_names_the_actuator_once_it_has_moved_memory() {
    let mut training = Training::new(directive(Mode::Act, "auto-plan"), 84 * MIB, 52 * MIB);
    training.run_until("trial");
    assert_eq!(training.world.decision().actuator, None);
    training.run_until("confirmed");
    assert_eq!(training.world.decision().actuator, Some(ActuatorKind::Helper));
}

#[test]
fn budget_is_that_of_all_moves_and_ends_the_plan() {
    let budget = Budget { bytes: Some(300 * MIB), ..Budget::default() };
    let act = Directive { budget, ..directive(Mode::Act, "auto-plan") };
    let mut training = Training::new(act, 84 * MIB, 52 * MIB);
    training.run_until("rolled_back");
    assert_eq!(training.stage().reason(), Some("the budget of 300 MiB is used up"));
    let moved = training.following().report.counters.bytes();
    assert!(moved <= 300 * MIB, "{moved}");
    training.run(120);
    assert_eq!(training.following().report.counters.bytes(), moved, "it is not tried again");
}

#[test]
fn plan_that_needs_a_higher_rate_than_it_may_have_is_denied() {
    let budget = Budget { bytes_per_second: Some(20 * MIB), ..Budget::default() };
    let act = Directive { budget, ..directive(Mode::Act, "auto-plan") };
    let mut training = Training::new(act, 84 * MIB, 52 * MIB);
    training.run(1);
    assert!(matches!(training.stage(), Stage::Denied(why) if why.contains("rate limit")), "{:?}", training.stage());
}

#[test]
fn reported_moves_are_charged_up_to_the_copied_bytes() {
    let mut training = Training::confirmed();
    training.following().report.counters.to_gpu_bytes = u64::MAX / 2;
    training.run(5);
    assert_eq!(training.stage(), &Stage::Confirmed);
}

#[test]
fn copies_in_later_intervals_of_an_iteration_count_for_its_requests() {
    let mut training = Training::new(directive(Mode::Act, "auto-plan"), 84 * MIB, 52 * MIB);
    training.requests_at_once = true;
    training.run_until("confirmed");
    let requested = training.following().report.counters;
    let moved = training.world.decision().plan.as_ref().unwrap().counters;
    // All but a part of the current iteration.
    assert!(moved.to_gpu_bytes <= requested.to_gpu_bytes, "{moved:?} {requested:?}");
    assert!(requested.to_gpu_bytes - moved.to_gpu_bytes <= 26 * MIB, "{moved:?} {requested:?}");
    assert!(moved.to_gpu_bytes > 10 * 26 * MIB, "{moved:?}");
}

#[test]
fn requests_beyond_what_was_copied_with_the_plan_are_neither_counted_nor_charged() {
    let trained = |excess| {
        let budget = Budget { bytes: Some(900 * MIB), ..Budget::default() };
        let mut training = Training::new(Directive { budget, ..directive(Mode::Act, "auto-plan") }, 84 * MIB, 52 * MIB);
        training.excess = excess;
        training.run_until("confirmed");
        training
    };
    let (honest, boastful) = (trained(1), trained(50));
    let moved = honest.world.decision().done.to_gpu_bytes;
    assert_eq!(moved, honest.world.following[&honest.id].report.counters.to_gpu_bytes);
    assert!(moved > 0 && boastful.world.following[&boastful.id].report.counters.to_gpu_bytes == 50 * moved);
    let decision = boastful.world.decision();
    assert_eq!((decision.done.to_gpu_bytes, decision.plan.as_ref().unwrap().counters.to_gpu_bytes), (moved, moved));
    assert!(decision.done.to_host_bytes.abs_diff(moved) < MIB);
}

#[test]
fn plan_with_counts_where_the_driver_alone_has_zero_is_expected_to_save_nothing() {
    let expected = |to_gpu_bytes, faulted_blocks| {
        let mut training = Training::of_pump(84 * MIB, FAULTS);
        let none = PlannedIteration {
            to_gpu_bytes,
            faulted_blocks,
            to_host_bytes: 0,
            faulted_bytes: 0,
            evicted_bytes: 0,
            driver_bytes: 0,
            driver_faulted_blocks: 0,
            ..planned(1)
        };
        training.following().state = FollowingState::Planned(none);
        training.run(1);
        let Expected { link_bytes_saved, faults_saved } = training.world.decision().expected;
        [link_bytes_saved, faults_saved].map(|Share { at_least, at_most }| (at_least, at_most))
    };
    assert_eq!(expected(0, 0), [(0.0, 0.0); 2]);
    assert_eq!(expected(7 * MIB, 7), [(-1.0, 0.0); 2]);
}

#[test]
fn decision_has_the_largest_of_many_ranges_and_the_size_of_all() {
    let mut training = Training::new(directive(Mode::Act, "auto-plan"), 84 * MIB, 52 * MIB);
    let range = |at: u64| (at * 8 * MIB, at * 8 * MIB + if at == 0 { 2 * MIB } else { 4 * MIB });
    let many = PlannedIteration { ranges: (0..1025).map(range).collect(), ..planned(1) };
    training.following().state = FollowingState::Planned(many);
    training.run(1);
    let decision = training.world.decision();
    assert_eq!((decision.ranges.len(), decision.ranges[0], decision.bytes), (1024, range(1), 4098 * MIB));
}

#[test]
fn missing_plan_is_reported_as_a_restriction() {
    const WHY: &str = "launches are in CUDA graphs, within which no memory can be moved";
    let mut training = Training::new(directive(Mode::Act, "auto-plan"), 84 * MIB, 52 * MIB);
    training.following().state = FollowingState::Refused(WHY.to_owned());
    training.run(1);
    assert!(training.world.acting.decisions().next().is_none());
    let restrictions = training.world.restrictions();
    assert!(
        restrictions.iter().any(|restriction| restriction.scope.name() == "auto-plan" && restriction.reason == WHY)
    );
}

#[test]
fn override_about_a_part_of_the_memory_is_denied() {
    let act = Directive { allocation_larger_than_bytes: Some(1), ..directive(Mode::Act, "auto-plan") };
    let mut training = Training::new(act, 84 * MIB, 52 * MIB);
    training.run(1);
    assert!(matches!(training.stage(), Stage::Denied(why) if why.contains("a part of the memory")));
}

#[test]
fn host_reserve_keeps_a_plan_from_being_tried() {
    let mut training = Training::new(directive(Mode::Act, "auto-plan"), 84 * MIB, 52 * MIB);
    training.world.headroom_bytes = 10 * MIB;
    training.run(1);
    assert!(matches!(training.stage(), Stage::Denied(why) if why.contains("host memory")), "{:?}", training.stage());
}

#[test]
fn end_of_the_service_withdraws_all_plans() {
    let mut training = Training::confirmed();
    training.world.acting.withdraw_all("uvmd stops");
    let withdrawal = PlanCommand { process: training.id, publish: None };
    assert_eq!(training.world.acting.take_plan_commands(), [withdrawal]);
    assert_eq!(training.stage(), &Stage::RolledBack("uvmd stops".to_owned()));
}

#[test]
fn exit_of_the_process_ends_the_plan() {
    let mut training = Training::confirmed();
    let (id, now) = (training.id, training.world.now);
    training.world.process(id).ended = Some(now);
    training.interval();
    assert_eq!(training.stage(), &Stage::Ended("the process has ended".to_owned()));
    assert_eq!(training.published, None);
}

#[test]
fn each_block_of_a_trial_is_an_event_and_a_confirmed_plan_is_silent() {
    let mut training = Training::confirmed();
    let updates =
        |training: &Training| training.world.events.iter().filter(|event| matches!(event, Event::Updated(_))).count();
    assert_eq!(updates(&training), 8, "seven blocks, and the eighth with the confirmation");
    training.run(60);
    assert_eq!(updates(&training), 8);
    assert!(training.world.acting.take_figures_changed());
}
