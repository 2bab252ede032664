//! Messages between uvmd and a planner process: JSON, as both ends are of the same build.
//!
//! Neither end trusts the other. The process receives a workload that a program has recorded. From
//! an answer, uvmd accepts only moves of movable memory that the iteration uses. It computes their
//! figures itself, and checks that they meet the requirements of their method.
//!
//! The process writes its best answer so far after each method, one per line. The last complete
//! line is the answer, even if the process was killed at its deadline.

use std::io::{self, Write};

use call_ring::{
    Plan, Token,
    plan::{Destination, MOVES_MAX, Move},
};
use serde::{Deserialize, Serialize};

use super::{Answer, BestOutline, BestSoFar};
use crate::{
    methods::{self, Problem, Workload},
    moves::pieces_in,
    pieces::{Piece, Pieces},
    refusal::{InvalidAnswer, Refusal},
};

/// Maximum bytes of the answers of `methods` methods; a move takes about 150.
#[must_use]
pub const fn answer_bytes_max(methods: usize) -> usize {
    (256 * MOVES_MAX).saturating_mul(methods)
}

/// Maximum bytes of a refusal in an answer.
const REASON_BYTES_MAX: usize = 512;
/// Maximum number of pieces in the ranges of all moves: an answer has at most two per use.
const MOVED_PIECES_MAX: usize = 2 * super::USES_MAX;

#[derive(Serialize)]
struct Question<'a> {
    methods: &'a [&'a str],
    workload: &'a Workload,
}

#[derive(Deserialize)]
struct OwnedQuestion {
    methods: Vec<String>,
    workload: Workload,
}

#[derive(Serialize, Deserialize)]
struct PlanAnswer {
    method: String,
    moves: Vec<WireMove>,
}

/// Wire format of a [`Move`].
#[derive(Serialize, Deserialize)]
struct WireMove {
    begin: u64,
    bytes: u64,
    to_gpu: bool,
    begin_op: u32,
    wait_op: Option<u32>,
    expiry_op: Option<u32>,
}

impl From<&Move> for WireMove {
    fn from(&Move { begin, bytes, destination, begin_op, wait_op, expiry_op }: &Move) -> Self {
        Self { begin, bytes, to_gpu: destination == Destination::Gpu, begin_op, wait_op, expiry_op }
    }
}

impl From<WireMove> for Move {
    fn from(WireMove { begin, bytes, to_gpu, begin_op, wait_op, expiry_op }: WireMove) -> Self {
        let destination = if to_gpu { Destination::Gpu } else { Destination::Host };
        Self { begin, bytes, destination, begin_op, wait_op, expiry_op }
    }
}

/// Encodes a question to a planner process.
///
/// # Errors
/// If it cannot be encoded as JSON.
pub fn question(methods: &[&str], workload: &Workload) -> Result<Vec<u8>, Refusal> {
    serde_json::to_vec(&Question { methods, workload }).map_err(|_| InvalidAnswer::Malformed.into())
}

/// Answers a question, in a planner process: writes the best answer so far after each method that
/// improves it, or the refusal of all.
///
/// # Errors
/// Those of the writer.
pub fn answer(question: &[u8], output: &mut dyn Write) -> io::Result<()> {
    let (methods, mut best) = match serde_json::from_slice(question) {
        Ok(OwnedQuestion { methods, workload }) => match BestSoFar::of(workload) {
            Ok(best) => (methods, best),
            Err(refusal) => return write_line(output, &Err(refusal)),
        },
        Err(_) => return write_line(output, &Err(InvalidAnswer::Malformed.into())),
    };
    for method in methods.iter().filter_map(|name| methods::by_name(name)) {
        if best.try_method(&*method) {
            write_line(output, &best.answer())?;
        }
    }
    let answer = best.answer();
    if answer.is_err() { write_line(output, &answer) } else { Ok(()) }
}

fn write_line(output: &mut dyn Write, answer: &Answer) -> io::Result<()> {
    let answer_line = answer.as_ref().map(|BestOutline { method, outline, .. }| {
        let moves = outline.moves.iter().map(WireMove::from).collect();
        PlanAnswer { method: (*method).to_owned(), moves }
    });
    // One write: the reader sees the complete line, or a prefix of it.
    let mut line = serde_json::to_vec(&answer_line)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}

/// Checks the last answer of a planner process to a question of `methods` and `workload`.
///
/// # Errors
/// If the answer is a refusal or invalid.
pub fn check(answers: &[u8], methods: &[&'static str], workload: &Workload) -> Answer {
    let answer = answers.strip_suffix(b"\n").ok_or(InvalidAnswer::Malformed)?;
    check_line(answer.rsplit(|byte| *byte == b'\n').next().unwrap_or_default(), methods, workload)
}

/// Last plan of a planner process that was killed; `None` if it had written no plan.
#[must_use]
pub fn best_so_far(answers: &[u8], methods: &[&'static str], workload: &Workload) -> Option<BestOutline> {
    // The text after the last line end is an incomplete line.
    let lines = answers.rsplit(|byte| *byte == b'\n').skip(1);
    lines.take(methods.len()).find_map(|line| check_line(line, methods, workload).ok())
}

fn check_line(answer: &[u8], methods: &[&'static str], workload: &Workload) -> Answer {
    let answer: Result<PlanAnswer, Refusal> = serde_json::from_slice(answer).map_err(|_| InvalidAnswer::Malformed)?;
    let PlanAnswer { method, moves } = answer.map_err(checked_refusal)?;
    let name = methods.iter().find(|name| **name == method).ok_or(InvalidAnswer::Method)?;
    let method = methods::by_name(name).ok_or(InvalidAnswer::Method)?;
    let moves: Vec<Move> = moves.into_iter().map(Move::from).collect();
    check_plan(&moves, &workload.pieces)?;
    if moves.iter().map(|step| pieces_in(&workload.pieces, step).len()).fold(0, usize::saturating_add)
        > MOVED_PIECES_MAX
    {
        return Err(InvalidAnswer::TooManyPieces.into());
    }
    if !moves.iter().all(|step| is_movable(&workload.pieces, step)) {
        return Err(InvalidAnswer::Memory.into());
    }
    let problem = Problem::from(workload.clone());
    let outline = method.assess(&problem, moves)?;
    Ok(BestOutline { method: name, outline, traffic_without_plan: problem.traffic_without_plan() })
}

/// Refusal, if it is short and has one line; otherwise the answer is malformed.
fn checked_refusal(refusal: Refusal) -> Refusal {
    let text = refusal.to_string();
    if text.len() > REASON_BYTES_MAX || text.contains(char::is_control) {
        return InvalidAnswer::Malformed.into();
    }
    refusal
}

/// Applies the checks of the helper and the actuator to moves.
fn check_plan(moves: &[Move], pieces: &Pieces) -> Result<(), InvalidAnswer> {
    let tokens = vec![Token::from_word(0); pieces.ops];
    let budget_bytes = moves.iter().map(|step| step.bytes).fold(0, u64::saturating_add);
    let plan = Plan { gpu: [0; 16], first_launch: 0, budget_bytes, handover_wait_ns: 0, tokens: &tokens, moves };
    plan.check().map_err(|_| InvalidAnswer::Plan)
}

/// Whether movable pieces cover all of a move.
fn is_movable(pieces: &Pieces, step: &Move) -> bool {
    let Some(end) = step.begin.checked_add(step.bytes) else { return false };
    let end_of = |piece: &Piece| piece.address.saturating_add(piece.bytes);
    let first = pieces.all.partition_point(|piece| piece.address <= step.begin).saturating_sub(1);
    let mut next = step.begin;
    for piece in pieces.all.iter().skip(first) {
        if next >= end || piece.address > next {
            break;
        }
        if piece.is_movable {
            next = next.max(end_of(piece));
        }
    }
    next >= end
}
