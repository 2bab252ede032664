//! `call_ring::plan`: memory of a plan, which uvmd writes, and any word of which a program may change
//! between two steps.
//!
//! Input: steps of a fixed length: a kind, the place of a word, and a value. What the helper copies and
//! accepts keeps what a plan promises, whatever was written, and is what was published where nothing was.

use std::sync::atomic::{AtomicU64, Ordering};

use call_ring::{
    Token,
    operation::apply,
    plan::{
        Counter, Destination, HANDOVER_WAIT_MAX_NS, MOVES_MAX, Move, PAGE_BYTES, PERIOD_MAX, PLAN_BYTES, Plan, PlanMemory, Reason, State,
        TABLE_WORDS, Table, heartbeat,
    },
};

/// Bytes of a step.
const STEP_BYTES: usize = 11;

pub(super) fn run(input: &[u8]) {
    let words: Vec<AtomicU64> = (0..PLAN_BYTES / 8).map(|_| AtomicU64::new(0)).collect();
    PlanMemory::create(&words).expect("it has the size of a plan");
    let copy: Vec<AtomicU64> = (0..TABLE_WORDS).map(|_| AtomicU64::new(0)).collect();
    let mut published: Option<(Vec<Token>, Vec<Move>)> = None;
    for step in input.chunks_exact(STEP_BYTES) {
        let place = usize::from(u16::from_le_bytes([step[1], step[2]]));
        let value = u64::from_le_bytes(step[3..].try_into().expect("it has eight bytes"));
        // A memory that a program has overwritten is not opened any more.
        let Ok(memory) = PlanMemory::open(&words) else { break };
        match step[0] % 6 {
            0 => {
                words[place % words.len()].store(value, Ordering::Relaxed);
                published = None;
            }
            1 => {
                let tokens: Vec<Token> = (0..=place as u64 % 64).map(Token::from_word).collect();
                let moves = moves(value, tokens.len());
                let (budget_bytes, handover_wait_ns) = (value, value % (2 * HANDOVER_WAIT_MAX_NS));
                let (tokens, moves) = (&tokens[..], &moves[..]);
                let plan = Plan { gpu: [1; 16], first_launch: 7, budget_bytes, handover_wait_ns, tokens, moves };
                // The program may have changed what was there.
                if let Ok((_, operations)) = memory.publish(&plan) {
                    apply(operations, &words);
                    published = Some((tokens.to_vec(), moves.to_vec()));
                }
            }
            2 => {
                apply(memory.withdraw(), &words);
                published = None;
            }
            3 => follow(&memory, Table::new(&copy), published.as_ref()),
            4 => {
                memory.set_state(value, State::Refused(Reason::Failed(u32::from(step[1]))));
                memory.count(Counter::Late, value);
            }
            _ => {
                // At the begin of a clock, there was none.
                let now_ns = value.max(1);
                apply([heartbeat(now_ns)], &words);
                assert!(memory.is_live(now_ns), "it was there just now");
                let _ = memory.report(&memory);
            }
        }
    }
}

/// Moves that are no plan if the number says so.
fn moves(number: u64, ops: usize) -> Vec<Move> {
    let op = |at: u64| u32::try_from(at % ops as u64).unwrap_or(0);
    let one = |at: u64| Move {
        begin: (number.rotate_left(8) >> 20).wrapping_add(at) * PAGE_BYTES,
        bytes: (number >> 4 & 3) * PAGE_BYTES,
        destination: if at.is_multiple_of(2) { Destination::Gpu } else { Destination::Host },
        begin_op: op(at),
        wait_op: Some(op(number)).filter(|_| number & 4 > 0),
        expiry_op: Some(op(number >> 3)).filter(|_| number & 8 > 0),
    };
    (0..number % 8).map(one).collect()
}

/// What the helper does with a plan that is there.
fn follow(memory: &PlanMemory<'_>, copy: Table<'_>, published: Option<&(Vec<Token>, Vec<Move>)>) {
    if !memory.copy_to(memory.generation(), copy) {
        return assert!(published.is_none(), "the plan is there");
    }
    let head = match copy.check() {
        Ok(head) => head,
        Err(reason) => return assert!(published.is_none(), "{reason:?}"),
    };
    assert!((1..=PERIOD_MAX).contains(&head.period) && head.moves <= MOVES_MAX, "{head:?}");
    let moves: Vec<Move> = (0..head.moves).map(|at| copy.move_at(at).expect("it was checked")).collect();
    let (mut last_op, mut bytes) = (0, 0_u64);
    for one in &moves {
        let ops = [Some(one.begin_op), one.wait_op, one.expiry_op];
        assert!(ops.into_iter().flatten().all(|op| (op as usize) < head.period), "{one:?}");
        assert!(one.bytes > 0 && one.begin % PAGE_BYTES == 0 && one.bytes % PAGE_BYTES == 0, "{one:?}");
        assert!(one.begin.checked_add(one.bytes).is_some() && one.begin_op >= last_op, "{one:?}");
        (last_op, bytes) = (one.begin_op, bytes.saturating_add(one.bytes));
    }
    assert!(bytes <= head.budget_bytes && head.handover_wait_ns <= HANDOVER_WAIT_MAX_NS, "{head:?}");
    if let Some((tokens, planned)) = published {
        let copied: Vec<Token> = (0..head.period).map(|op| copy.token(op)).collect();
        assert_eq!((&copied, &moves), (tokens, planned));
    }
}
