//! Tests of the tables of launches.

use std::collections::BTreeMap;

use call_ring::{
    Dim3, Memory, Mode, PLAN_BYTES, TOTAL_BYTES, Token, operation,
    plan::{self, Destination, Header, Move},
    token::Signature,
};

use super::*;

fn empty_plan() -> Plan {
    plan_in(mapping::private(PLAN_BYTES / 8).unwrap())
}

fn plan_in(words: &'static [AtomicU64]) -> Plan {
    let ring = Memory::create(mapping::private(TOTAL_BYTES / 8).unwrap(), Mode::Act).unwrap();
    let shared = PlanMemory::create(words).unwrap();
    Plan::new(Permission::new(ring, Box::leak(Box::default())), shared, &mut Words::new(mapping::private(16).unwrap()))
        .unwrap()
}

/// Plan that was published, copied, checked and indexed.
fn adopted(first_launch: u32, period: usize, moves: &[Move]) -> (Plan, Header) {
    let words = mapping::private(PLAN_BYTES / 8).unwrap();
    let plan = plan_in(words);
    let size = Dim3::new(1, 1, 1);
    let tokens = vec![Token { signature: Signature::of_kernel(1, size, size, 0), pointers: None }; period];
    let budget_bytes = u64::MAX;
    let published =
        plan::Plan { gpu: [7; 16], first_launch, budget_bytes, handover_wait_ns: 0, tokens: &tokens, moves };
    let (generation, operations) = plan.shared.publish(&published).unwrap();
    operation::apply(operations, words);
    assert!(plan.shared.copy_to(generation, plan.table));
    let header = plan.table.check().unwrap();
    plan.build_index(&header);
    (plan, header)
}

#[test]
fn op_index_lists_moves_to_begin_and_to_wait_for() {
    let mut state = 1_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    for (period, count) in [(1, 0), (1, 9), (5, 3), (40, 60), (PERIOD_MAX, 500), (3, MOVES_MAX)] {
        let mut op = || u32::try_from(random(period as u64)).unwrap();
        let mut moves: Vec<Move> = (0..count)
            .map(|_| Move {
                begin: 0x1000,
                bytes: 0x1000,
                destination: Destination::Gpu,
                begin_op: op(),
                wait_op: (op() % 3 != 0).then(&mut op),
                expiry_op: (op() % 3 != 0).then(&mut op),
            })
            .collect();
        moves.sort_by_key(|planned| planned.begin_op);
        let (mut begins, mut waits) = (BTreeMap::<usize, Vec<usize>>::new(), BTreeMap::<usize, Vec<u64>>::new());
        for (at, planned) in moves.iter().enumerate() {
            begins.entry(planned.begin_op as usize).or_default().push(at);
            let expiry_op = planned.expiry_op.filter(|op| planned.wait_op != Some(*op));
            for (op, expiry) in [(planned.wait_op, 0), (expiry_op, AT_EXPIRY)] {
                if let Some(op) = op {
                    waits.entry(op as usize).or_default().push(at as u64 | expiry);
                }
            }
        }
        // Indexing again replaces the former index completely.
        let (plan, header) = adopted(0, period, &moves);
        plan.build_index(&header);
        for op in 0..period {
            let index = OpIndex::from_word(get(plan.ops, op));
            assert_eq!(index.moves().collect::<Vec<_>>(), begins.remove(&op).unwrap_or_default());
            let waiting = index.waits().map(|at| get(plan.waits, at));
            assert_eq!(waiting.collect::<Vec<_>>(), waits.remove(&op).unwrap_or_default());
        }
    }
}

#[test]
fn plan_starts_with_the_next_iteration() {
    for period in [1, 2, 7] {
        for first_launch in [0, 1, 5, 100, 1 << 30, u32::MAX] {
            let (plan, header) = adopted(first_launch, period, &[]);
            for launches in (0..20).chain((1 << 32) - 10..(1 << 32) + 10) {
                plan.launches.store(launches, Ordering::Relaxed);
                let begin = plan.next_iteration_begin(&header);
                let period = period as u64;
                assert!((launches + 1..=launches + period).contains(&begin), "{begin} after {launches}");
                let since =
                    u32::try_from(begin & u64::from(u32::MAX)).unwrap().wrapping_sub(first_launch).cast_signed();
                assert_eq!(i64::from(since) % i64::try_from(period).unwrap(), 0);
            }
        }
    }
}

#[test]
fn move_expires_at_the_next_launch_of_its_expiry_op() {
    let move_of = |begin_op, expiry_op| Move {
        begin: 0x1000,
        bytes: 0x1000,
        destination: Destination::Host,
        begin_op,
        wait_op: expiry_op,
        expiry_op,
    };
    // Whether the move has expired, and is too late, `since` launches after the one that began it.
    let expired = |begin_op: u32, expiry_op: Option<u32>, since: u64, handover_wait_ns: u64| {
        let (plan, _) = adopted(1, 8, &[move_of(begin_op, expiry_op)]);
        plan.period.store(8, Ordering::Relaxed);
        let launch = 3 * 8 + u64::from(begin_op);
        plan.launches.store(launch + since, Ordering::Relaxed);
        plan.handover_wait_ns.store(handover_wait_ns, Ordering::Relaxed);
        let planned = plan.table.move_at(0).unwrap();
        (plan.has_expired(&planned, launch), plan.is_too_late(&planned, launch))
    };
    for (begin_op, expiry_op, ahead) in [(0, 1, 1), (2, 5, 3), (6, 1, 3), (7, 6, 7), (3, 3, 8)] {
        for since in 0..30 {
            let (has_expired, case) = (since >= ahead, (begin_op, expiry_op, since));
            assert_eq!(expired(begin_op, Some(expiry_op), since, 0), (has_expired, has_expired), "{case:?}");
            // The launch at the expiry waits for the move.
            let is_too_late = since > ahead;
            assert_eq!(expired(begin_op, Some(expiry_op), since, 1), (has_expired, is_too_late), "{case:?}");
        }
    }
    assert!((0..30).all(|since| expired(3, None, since, 1) == (false, false)));
}

#[test]
fn a_plan_ends_once() {
    let plan = empty_plan();
    plan.stop(Reason::Freed);
    assert_eq!(plan.shared.report(&plan.shared).state, Some(State::None));
    plan.followed.store(4, Ordering::SeqCst);
    plan.end(2, State::Drifted(1));
    assert!(plan.is_followed() && plan.shared.report(&plan.shared).counters.mismatched == 0);
    plan.end(4, State::Drifted(3));
    plan.stop(Reason::Exit);
    let report = plan.shared.report(&plan.shared);
    assert_eq!((report.generation, report.state, report.counters.mismatched), (4, Some(State::Drifted(3)), 1));
    assert!(plan.visit().is_none() && plan.visitors.load(Ordering::SeqCst) == 0);
}

#[test]
fn handover_timeout_backs_off_for_a_second_and_no_launch_waits_without_a_plan() {
    let plan = empty_plan();
    plan.followed.store(2, Ordering::SeqCst);
    let (queued, enqueued) = (AtomicU64::new(stage::queued(1)), AtomicU64::new(stage::ENQUEUED));
    let waits = || plan.handover_deadline_ns().is_some();
    // The plan has no waits.
    assert_eq!(plan.handover_deadline_ns(), None);
    plan.handover_wait_ns.store(u64::MAX, Ordering::Relaxed);
    let never = plan.handover_deadline_ns().unwrap();
    // Each of these would wait for ever if its move counted as pending.
    plan.wait_for_handover(&enqueued, 2, never);
    plan.wait_for_handover(&AtomicU64::new(stage::IDLE), 2, never);
    plan.wait_for_handover(&queued, 4, never);
    plan.permission.memory.set_mode(Mode::Record);
    plan.wait_for_handover(&queued, 2, never);
    plan.permission.memory.set_mode(Mode::Act);
    plan.permission.is_filter_requested.store(true, Ordering::Relaxed);
    plan.wait_for_handover(&queued, 2, never);
    plan.permission.is_filter_requested.store(false, Ordering::Relaxed);
    std::thread::scope(|scope| {
        let word = &queued;
        scope.spawn(move || {
            std::thread::yield_now();
            word.store(stage::ENQUEUED, Ordering::Release);
        });
        plan.wait_for_handover(word, 2, never);
    });
    assert_eq!((queued.load(Ordering::Relaxed), waits()), (stage::ENQUEUED, true));
    plan.wait_for_handover(&AtomicU64::new(stage::IN_PROGRESS), 2, 0);
    let backoff_end_ns = plan.wait_backoff_end_ns.load(Ordering::Relaxed);
    assert!(backoff_end_ns > clock::monotonic_ns() - launch::WAIT_BACKOFF_NS);
    plan.wait_backoff_end_ns.store(u64::MAX, Ordering::Relaxed);
    assert!(!waits());
    plan.wait_backoff_end_ns.store(clock::monotonic_ns(), Ordering::Relaxed);
    assert!(waits(), "the back-off is over");
}
