//! Planners that answer later, and validation of their answers.

use std::{cell::RefCell, ops::Range, rc::Rc, time::Duration};

use plans::{
    Answer, Change, Follower, Outliner, Refusal, Settings, State,
    methods::{self, Workload},
    planning::{self, wire},
    refusal::InvalidAnswer,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    generated::{ITERATIONS, address, iterate, layers, run},
    replay::UNIT,
};

/// Planners that answer on the command of a test.
#[derive(Clone, Default)]
struct Deferred(Rc<RefCell<Work>>);

#[derive(Default)]
struct Work {
    workload: Option<Workload>,
    answer: Option<Answer>,
    stops: usize,
    begins: usize,
    retry_delay: Option<Duration>,
    is_retry_due: bool,
}

impl Outliner for Deferred {
    fn start(&mut self, workload: Workload) -> Option<Answer> {
        let mut work = self.0.borrow_mut();
        (work.workload, work.begins) = (Some(workload), work.begins + 1);
        None
    }

    fn poll(&mut self) -> Option<Answer> {
        self.0.borrow_mut().answer.take()
    }

    fn cancel(&mut self) {
        let mut work = self.0.borrow_mut();
        work.workload = None;
        work.stops += 1;
    }

    fn retry_delay(&self) -> Option<Duration> {
        self.0.borrow().retry_delay
    }

    fn is_retry_due(&self) -> bool {
        self.0.borrow().is_retry_due
    }
}

const fn settings(units: u64) -> Settings {
    Settings { user: 0, gpu: [1; 16], gpu_bytes: units * UNIT, has_fault_counts: false, probes: None }
}

fn best(method: &str, workload: Workload) -> Answer {
    planning::best_outline(&[methods::by_name(method).unwrap()], workload)
}

/// Follower of a training whose planners have not answered yet.
fn planning() -> (Follower, Deferred) {
    let deferred = Deferred::default();
    let mut follower = Follower::new(settings(17), deferred.clone());
    let changes: Vec<Change> = run(24, &layers(8)).calls.iter().filter_map(|call| follower.add(call.clone())).collect();
    assert_eq!((changes, follower.state()), (vec![Change::Planning], &State::Planning));
    (follower, deferred)
}

/// Workload that planners get for iterations that use blocks in this way, if any.
fn workload(units: u64, blocks: usize, launches: &[Vec<usize>]) -> Option<Workload> {
    let deferred = Deferred::default();
    let mut follower = Follower::new(settings(units), deferred.clone());
    run(blocks, launches).calls.iter().for_each(|call| _ = follower.add(call.clone()));
    deferred.0.take().workload
}

#[test]
fn calls_are_followed_while_planners_compute() {
    let (mut follower, deferred) = planning();
    assert_eq!(follower.poll(), None);
    let (mut program, before) = (run(24, &layers(8)), follower.iteration().unwrap().number);
    let known = program.calls.len();
    (0..3).for_each(|_| iterate(&mut program, &layers(8)));
    assert!(program.calls[known..].iter().all(|call| follower.add(call.clone()).is_none()));
    assert_eq!(follower.iteration().unwrap().number, before + 3);
    let workload = deferred.0.borrow().workload.clone().unwrap();
    deferred.0.borrow_mut().answer = Some(best("foresight", workload));
    assert_eq!(follower.poll(), Some(Change::Planned));
    // The same plan as with an immediate answer.
    let mut other = Follower::new(settings(17), vec![methods::by_name("foresight").unwrap()]);
    program.calls.iter().for_each(|call| _ = other.add(call.clone()));
    assert_eq!(follower.planned(), other.planned());
    assert_eq!(follower.poll(), None);
}

#[test]
fn answer_is_dropped_after_drift() {
    let (mut follower, deferred) = planning();
    let mut program = run(24, &layers(8));
    let known = program.calls.len();
    program.launch(99, &[address(5)]);
    let workload = deferred.0.borrow().workload.clone().unwrap();
    assert_eq!(follower.add(program.calls[known].clone()), Some(Change::Drifted));
    assert_eq!(deferred.0.borrow().stops, 1);
    deferred.0.borrow_mut().answer = Some(best("foresight", workload));
    assert_eq!((follower.poll(), follower.state()), (None, &State::Watching));
    // The next iteration is planned anew.
    deferred.0.borrow_mut().answer = None;
    let known = program.calls.len();
    (0..ITERATIONS).for_each(|_| iterate(&mut program, &layers(8)));
    program.calls[known..].iter().for_each(|call| _ = follower.add(call.clone()));
    assert_eq!(follower.state(), &State::Planning);
}

#[test]
fn refusal_of_planners_becomes_the_state_of_the_follower() {
    let (mut follower, deferred) = planning();
    let refusal = Refusal::PlanningTime { limit_ms: 2000 };
    deferred.0.borrow_mut().answer = Some(Err(refusal.clone()));
    assert_eq!((follower.poll(), follower.state()), (Some(Change::Refused), &State::Refused(refusal)));
}

#[test]
fn planning_is_retried_at_the_start_of_an_iteration_once_due() {
    let (mut follower, deferred) = planning();
    let mut program = run(24, &layers(8));
    let workload = deferred.0.borrow().workload.clone().unwrap();
    deferred.0.borrow_mut().answer = Some(Err(Refusal::PlanningTime { limit_ms: 2000 }));
    deferred.0.borrow_mut().retry_delay = Some(Duration::from_secs(10));
    assert_eq!(follower.poll(), Some(Change::Refused));
    assert_eq!(follower.retry_delay(), Some(Duration::from_secs(10)));
    let mut iteration = |follower: &mut Follower| -> Vec<Change> {
        let known = program.calls.len();
        iterate(&mut program, &layers(8));
        program.calls[known..].iter().filter_map(|call| follower.add(call.clone())).collect()
    };
    assert_eq!(iteration(&mut follower), []);
    deferred.0.borrow_mut().is_retry_due = true;
    assert_eq!((iteration(&mut follower), deferred.0.borrow().begins), (vec![Change::Planning], 2));
    assert_eq!(follower.retry_delay(), None);
    deferred.0.borrow_mut().answer = Some(best("foresight", workload));
    assert_eq!(follower.poll(), Some(Change::Planned));
    assert_eq!(iteration(&mut follower), []);
}

#[test]
fn last_complete_answer_of_a_killed_process_is_used() {
    let workload = workload(17, 24, &layers(8)).unwrap();
    let methods = ["foresight", "autoswap"];
    let mut answers = answered(&wire::question(&["foresight"], &workload).unwrap());
    let best = best("foresight", workload.clone()).ok();
    assert!(best.is_some());
    assert_eq!(wire::best_so_far(&answers, &methods, &workload), best);
    // A second answer that is incomplete, or the message of an abort, has no effect.
    for rest in
        [&answers.clone()[..40], b"memory allocation of 8 bytes failed", b"memory allocation of 8 bytes failed\n"]
    {
        let all = [&answers[..], rest].concat();
        assert_eq!(wire::best_so_far(&all, &methods, &workload), best);
    }
    // An incomplete line is not an answer.
    answers.pop();
    assert_eq!(wire::best_so_far(&answers, &methods, &workload), None);
}

#[test]
fn memory_with_a_partial_page_is_prefetched() {
    // Each allocation is a piece of whole blocks and a partial block.
    let piece = |at: u64, offset: u64, bytes: u64| {
        json!({ "block": at, "address": (1_u64 << 40) + at * (16 << 20) + offset, "bytes": bytes,
            "is_managed": true, "is_movable": true, "outlives": true, "uses": [at] })
    };
    let pieces: Vec<Value> = (0..16).flat_map(|at| [piece(at, 0, 8 << 20), piece(at, 8 << 20, 100_001)]).collect();
    let gpu_bytes = 48_u64 << 20;
    let workload: Workload = serde_json::from_value(json!({
        "pieces": { "ops": 16, "all": pieces },
        "durations_ns": vec![1_000_000_u64; 16],
        "queue_starts": vec![Some(0_usize); 16],
        "memory": { "bytes": gpu_bytes, "room_bytes": gpu_bytes, "launch_bytes_max": gpu_bytes },
    }))
    .unwrap();
    let best = best("pump", workload.clone()).unwrap();
    let moved: u64 = best.outline.moves.iter().map(|step| step.bytes).sum();
    assert!(best.outline.traffic.bytes.to_gpu > moved);
    let answers = answered(&wire::question(&["pump"], &workload).unwrap());
    assert_eq!(wire::check(&answers, &["pump"], &workload), Ok(best));
}

/// Answers of a planner process to a question.
fn answered(question: &[u8]) -> Vec<u8> {
    let mut answers = Vec::new();
    wire::answer(question, &mut answers).unwrap();
    answers
}

/// Result for the answer of a planner process about a training, after a change of the answer.
fn checked(change: impl Fn(&mut Value)) -> Answer {
    let workload = workload(17, 24, &layers(8)).unwrap();
    let answer = answered(&wire::question(&["foresight"], &workload).unwrap());
    let mut answer: Value = serde_json::from_slice(&answer).unwrap();
    change(&mut answer);
    wire::check(format!("{answer}\n").as_bytes(), &["foresight"], &workload)
}

#[test]
fn planner_process_answers_as_its_methods_do_directly() {
    let workload = workload(17, 24, &layers(8)).unwrap();
    assert_eq!(checked(|_| {}), best("foresight", workload.clone()));
    let refused = answered(&wire::question(&["pump"], &workload).unwrap());
    assert_eq!(wire::check(&refused, &["pump"], &workload), best("pump", workload.clone()));
    assert_eq!(wire::check(b"", &["pump"], &workload), Err(InvalidAnswer::Malformed.into()));
    let malformed = answered(b"{}");
    assert_eq!(wire::check(&malformed, &["pump"], &workload), Err(InvalidAnswer::Malformed.into()));
}

#[test]
fn answers_that_do_not_match_the_question_are_rejected_with_the_reason() {
    let refused = |change: &dyn Fn(&mut Value), reason: InvalidAnswer| {
        assert_eq!(checked(|answer| change(&mut answer["Ok"])), Err(reason.into()));
    };
    refused(&|answer| answer["method"] = json!("pump"), InvalidAnswer::Method);
    refused(&|answer| answer["moves"] = json!([{}]), InvalidAnswer::Malformed);
    refused(&|answer| answer["moves"][0]["begin_op"] = json!(24), InvalidAnswer::Plan);
    refused(&|answer| answer["moves"][0]["bytes"] = json!(0), InvalidAnswer::Plan);
    refused(&|answer| answer["moves"][0]["begin"] = json!(address(0) + 1), InvalidAnswer::Plan);
    refused(&|answer| answer["moves"].as_array_mut().unwrap().reverse(), InvalidAnswer::Plan);
    // Memory of no allocation, memory between two blocks, and more than a block.
    refused(&|answer| answer["moves"][0]["begin"] = json!(4096), InvalidAnswer::Memory);
    refused(&|answer| answer["moves"][0]["begin"] = json!(address(0) + UNIT), InvalidAnswer::Memory);
    refused(&|answer| answer["moves"][0]["bytes"] = json!(UNIT + 4096), InvalidAnswer::Memory);
}

/// Moves of too many pieces in all are rejected before gaps between pieces are searched.
#[test]
fn moved_pieces_are_counted_before_they_are_checked() {
    let workload = workload(800, 3 * 180, &layers(180)).unwrap();
    let everything = json!({ "begin": address(0), "bytes": 3 * 180 * 2 * UNIT, "to_gpu": true, "begin_op": 0,
        "wait_op": null, "expiry_op": null });
    let check = |moves: usize| {
        let answer = json!({ "Ok": { "method": "harmful-plan", "moves": vec![everything.clone(); moves] } });
        wire::check(format!("{answer}\n").as_bytes(), &["harmful-plan"], &workload)
    };
    assert_eq!(check(1), Err(InvalidAnswer::Memory.into()));
    assert_eq!(check(4096), Err(InvalidAnswer::TooManyPieces.into()));
}

#[test]
fn refusal_of_a_planner_process_is_one_short_line() {
    let refusal = |refusal: Value| checked(|answer| *answer = json!({ "Err": refusal }));
    let failed = |reason: &str| json!({ "PlannerFailed": { "reason": reason } });
    let nested = |reason: Value| json!({ "Unmapped": { "unmapped_bytes": 1, "reason": reason } });
    assert_eq!(refusal(failed("of it")), Err(Refusal::PlannerFailed { reason: "of it".to_owned() }));
    let long = "x".repeat(1000);
    for invalid in [failed(&long), nested(failed(&long)), nested(nested(failed(&long))), failed("two\nlines")] {
        assert_eq!(refusal(invalid.clone()), Err(InvalidAnswer::Malformed.into()), "{invalid}");
    }
}

/// Counts of a plan are computed from its moves: those in an answer are ignored.
#[test]
fn figures_of_an_answer_are_computed_from_its_moves() {
    let nothing = json!({ "bytes": { "to_gpu": 0, "to_host": 0, "faulted": 0, "evicted": 0 },
        "faulted_pieces": 0, "peak_bytes": 0 });
    let claimed = checked(|answer| {
        answer["Ok"]["peak_bytes"] = json!(0);
        (answer["Ok"]["traffic"], answer["Ok"]["driver"]) = (nothing.clone(), nothing.clone());
    });
    assert_eq!(claimed, best("foresight", workload(17, 24, &layers(8)).unwrap()));
    // There is no room for memory that is fetched and never leaves.
    let stays = checked(|answer| answer["Ok"]["moves"].as_array_mut().unwrap().retain(|step| step["to_gpu"] == true));
    assert_eq!(stays, Err(Refusal::NoRoom));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Any workload reaches planners unchanged, and so does their answer in return.
    #[test]
    fn messages_round_trip(
        launches in prop::collection::vec(prop::collection::vec(0_usize..12, 1..4), 4..24),
        units in 4_u64..12,
    ) {
        if let Some(workload) = workload(units, 12, &launches) {
            for method in ["foresight", "autoswap", "pump", "harmful-plan"] {
                let answer = answered(&wire::question(&[method], &workload).unwrap());
                prop_assert_eq!(wire::check(&answer, &[method], &workload), best(method, workload.clone()));
            }
        }
    }

    /// No answer of a planner process moves other memory than that of the iteration.
    #[test]
    fn no_answer_moves_memory_that_the_iteration_does_not_use(
        moves in prop::collection::vec((0_u64..52, 0_u64..2048, 1_u64..1200, any::<bool>(), 0_u32..26), 0..8),
        bytes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    ) {
        let workload = workload(17, 24, &layers(8)).unwrap();
        let answer = answered(&wire::question(&["foresight"], &workload).unwrap());
        let mut answer: Value = serde_json::from_slice(&answer).unwrap();
        let step = |(unit, page, pages, to_gpu, begin_op)| {
            let begin = address(0) + unit * UNIT + page / 4 * 4096;
            json!({ "begin": begin, "bytes": pages * 4096, "to_gpu": to_gpu, "begin_op": begin_op,
                "wait_op": null, "expiry_op": null })
        };
        if !moves.is_empty() {
            let mut moves = moves;
            moves.sort_by_key(|step| step.4);
            answer["Ok"]["moves"] = moves.into_iter().map(step).collect();
            answer["Ok"]["traffic"]["bytes"]["to_gpu"] = json!(0);
            answer["Ok"]["traffic"]["bytes"]["to_host"] = json!(0);
        }
        let mut text = format!("{answer}\n").into_bytes();
        for (at, byte) in bytes {
            let at = at.index(text.len());
            text[at] = byte;
        }
        let blocks: Vec<Range<u64>> = (0..24).map(|block| address(block)..address(block) + UNIT).collect();
        if let Ok(outlined) = wire::check(&text, &["foresight"], &workload) {
            for step in outlined.outline.moves {
                let end = step.begin + step.bytes;
                prop_assert!(blocks.iter().any(|block| block.contains(&step.begin) && end <= block.end), "{step:?}");
                prop_assert!((step.begin_op as usize) < 24);
            }
        }
    }
}
