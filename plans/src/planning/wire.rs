//! Messages between uvmd and a planner process: JSON, as both ends are of one build.
//!
//! The process believes nothing: what uvmd passes on is what a program says of itself. uvmd believes
//! no answer: it takes moves of memory that the iteration uses and that may move, and nothing else.

use call_ring::{
    Plan, Token,
    plan::{Destination, MOVES_MAX, Move},
};
use serde::{Deserialize, Serialize};

use super::{Answer, BestOutline, best};
use crate::{
    methods::{self, Outline, Workload},
    pieces::{Piece, Pieces},
    refusal::{InvalidAnswer, Refusal},
    traffic::Traffic,
};

/// Most bytes of an answer: some 150 for each move.
pub const ANSWER_BYTES_MAX: usize = 256 * MOVES_MAX;
/// Most bytes of a reason in an answer.
const REASON_BYTES_MAX: usize = 256;

#[derive(Serialize)]
struct Question<'a> {
    methods: &'a [&'a str],
    workload: &'a Workload,
}

#[derive(Deserialize)]
struct Asked {
    methods: Vec<String>,
    workload: Workload,
}

#[derive(Serialize, Deserialize)]
struct Found {
    method: String,
    moves: Vec<Step>,
    traffic: Traffic,
    peak_bytes: u64,
    driver: Traffic,
}

/// A [`Move`].
#[derive(Serialize, Deserialize)]
struct Step {
    begin: u64,
    bytes: u64,
    to_gpu: bool,
    begin_op: u32,
    wait_op: Option<u32>,
    expiry_op: Option<u32>,
}

impl From<&Move> for Step {
    fn from(&Move { begin, bytes, destination, begin_op, wait_op, expiry_op }: &Move) -> Self {
        Self { begin, bytes, to_gpu: destination == Destination::Gpu, begin_op, wait_op, expiry_op }
    }
}

impl From<Step> for Move {
    fn from(Step { begin, bytes, to_gpu, begin_op, wait_op, expiry_op }: Step) -> Self {
        let destination = if to_gpu { Destination::Gpu } else { Destination::Host };
        Self { begin, bytes, destination, begin_op, wait_op, expiry_op }
    }
}

/// Question to a planner process.
///
/// # Errors
/// If the workload is out of proportion.
pub fn question(methods: &[&str], workload: &Workload) -> Result<Vec<u8>, Refusal> {
    super::admit(&workload.pieces)?;
    serde_json::to_vec(&Question { methods, workload }).map_err(|_| InvalidAnswer::Malformed.into())
}

/// Answer of a planner process to a question.
#[must_use]
pub fn answer(question: &[u8]) -> Vec<u8> {
    let answer = serde_json::from_slice(question).map_err(|_| InvalidAnswer::Malformed.into()).and_then(
        |Asked { methods, workload }| {
            let methods: Vec<_> = methods.iter().filter_map(|name| methods::by_name(name)).collect();
            best(&methods, workload)
        },
    );
    let found = answer.map(|BestOutline { method, outline, driver }| {
        let Outline { moves, traffic, peak_bytes } = outline;
        let moves = moves.iter().map(Step::from).collect();
        Found { method: method.to_owned(), moves, traffic, peak_bytes, driver }
    });
    // Without a text the other end finds the answer malformed.
    serde_json::to_vec(&found).unwrap_or_default()
}

/// Checks an answer of a planner process to the question of these methods and this workload.
///
/// # Errors
/// If it is a refusal, or none that is to be used.
pub fn check(answer: &[u8], methods: &[&'static str], workload: &Workload) -> Answer {
    let answer: Result<Found, Refusal> = serde_json::from_slice(answer).map_err(|_| InvalidAnswer::Malformed)?;
    let Found { method, moves, traffic, peak_bytes, driver } = answer.map_err(bounded)?;
    let method = methods.iter().find(|name| **name == method).ok_or(InvalidAnswer::Method)?;
    let moves: Vec<Move> = moves.into_iter().map(Move::from).collect();
    is_plan(&moves, &workload.pieces)?;
    if !moves.iter().all(|step| is_movable(&workload.pieces, step)) {
        return Err(InvalidAnswer::Memory.into());
    }
    let bytes_to = |destination| {
        let moves = moves.iter().filter(|step| step.destination == destination);
        moves.map(|step| step.bytes).fold(0, u64::saturating_add)
    };
    let bytes = traffic.bytes;
    if bytes.to_gpu > bytes_to(Destination::Gpu) || bytes.to_host > bytes_to(Destination::Host) {
        return Err(InvalidAnswer::Figures.into());
    }
    Ok(BestOutline { method, outline: Outline { moves, traffic, peak_bytes }, driver })
}

/// Refusal with a reason of no more than a line.
fn bounded(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::Invalid { reason } | Refusal::PlannerFailed { reason } if reason.len() > REASON_BYTES_MAX => {
            InvalidAnswer::Malformed.into()
        }
        refusal => refusal,
    }
}

/// Checks moves as whoever carries them out does.
fn is_plan(moves: &[Move], pieces: &Pieces) -> Result<(), InvalidAnswer> {
    let tokens = vec![Token::of_word(0); pieces.ops];
    let budget_bytes = moves.iter().map(|step| step.bytes).fold(0, u64::saturating_add);
    let plan = Plan { gpu: [0; 16], first_launch: 0, budget_bytes, handover_wait_ns: 0, tokens: &tokens, moves };
    plan.check().map_err(|_| InvalidAnswer::Plan)
}

/// Whether all of a move is of pieces that may move.
fn is_movable(pieces: &Pieces, step: &Move) -> bool {
    let Some(end) = step.begin.checked_add(step.bytes) else { return false };
    let behind = |piece: &Piece| piece.address.saturating_add(piece.bytes);
    let first = pieces.all.partition_point(|piece| piece.address <= step.begin).saturating_sub(1);
    let mut next = step.begin;
    for piece in pieces.all.iter().skip(first) {
        if next >= end || piece.address > next {
            break;
        }
        if piece.moves {
            next = next.max(behind(piece));
        }
    }
    next >= end
}
