//! Position of a program in a plan carried out from outside the process, by its recorded calls.
//!
//! Launches are compared with the plan as in the helper. Only their records are available: a launch
//! without a record, refused by the driver or not recorded, ends the plan as well.

use std::ops::Range;

use call_ring::{
    MemoryKind, Plan, Token,
    advice::Subject,
    call::{Action, Call},
    plan::{MOVES_MAX, Move},
};
use recorder::Program;
use thiserror::Error;

/// Maximum number of begun moves that are not taken yet: as many as a plan has. Further ones are
/// skipped.
const BEGUN_MAX: usize = MOVES_MAX;

/// Reason for ending a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages document the variants")]
pub enum Ending {
    #[error("launch {op} of an iteration was another one than planned")]
    Drifted { op: usize },
    #[error("the record of launch {op} of an iteration is missing")]
    Missing { op: usize },
    #[error("records of calls are missing")]
    Gap,
    #[error("memory of a move is not managed memory of the program")]
    NotAllocated,
    #[error("the program has freed memory of a move")]
    Freed,
    #[error("the program has given advice of its own on memory of a move")]
    ProgramAdvice,
}

/// Move that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Index of the move in the plan.
    pub at: usize,
    /// The move.
    pub step: Move,
    /// Launch from which the move is late, by number since the plan is followed: the launch at
    /// which it expires, or else the one that waits for it.
    pub deadline_launch: Option<u64>,
}

/// Position of a program in a plan.
#[derive(Clone, Debug)]
pub struct Tracker {
    first_launch: u32,
    tokens: Vec<Token>,
    /// Moves, ordered by the ops after which they begin.
    moves: Vec<Move>,
    /// Memory of the moves, sorted by address.
    ranges: Vec<Range<u64>>,
    is_checked: bool,
    /// Sequence number of the last call. Gaps end the plan: a missing call may be a free or advice.
    last_sequence: Option<u64>,
    /// Number of the last compared launch, in the helper's numbering.
    last: Option<u32>,
    /// Launches since the begin of the first followed iteration.
    launches: u64,
    iterations: u64,
    begun: Vec<Begun>,
    skipped: u64,
}

impl Tracker {
    /// Tracker of a plan, which follows it from the next iteration on.
    #[must_use]
    pub fn new(plan: &Plan<'_>) -> Self {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut all: Vec<Range<u64>> = plan.moves.iter().map(range_of).collect();
        all.sort_unstable_by_key(|range| range.start);
        for range in all {
            match ranges.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => ranges.push(range),
            }
        }
        Self {
            first_launch: plan.first_launch,
            tokens: plan.tokens.to_vec(),
            moves: plan.moves.to_vec(),
            ranges,
            is_checked: false,
            last_sequence: None,
            last: None,
            launches: 0,
            iterations: 0,
            begun: Vec::new(),
            skipped: 0,
        }
    }

    /// Launches since the begin of the first followed iteration.
    #[must_use]
    pub const fn launches(&self) -> u64 {
        self.launches
    }

    /// Iterations followed to their end.
    #[must_use]
    pub const fn iterations(&self) -> u64 {
        self.iterations
    }

    /// Moves skipped because too many had begun.
    #[must_use]
    pub const fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Takes the moves that have begun since the last call.
    pub fn take_begun(&mut self) -> Vec<Begun> {
        std::mem::take(&mut self.begun)
    }

    /// Adds the next calls of a program; `program` is its state before them.
    ///
    /// # Errors
    /// The reason, if the plan ends: none of its memory may be moved any more.
    pub fn add(&mut self, calls: &[Call], program: &Program) -> Result<(), Ending> {
        if !self.is_checked {
            self.check(program)?;
            self.is_checked = true;
        }
        calls.iter().try_for_each(|call| self.add_one(call, program))
    }

    /// Checks that the program permits moves of the plan's memory.
    fn check(&self, program: &Program) -> Result<(), Ending> {
        for range in &self.ranges {
            let mut at = range.start;
            while at < range.end {
                let block = program.block(at).filter(|block| block.kind == MemoryKind::Managed);
                at = block.map(|block| block.address.saturating_add(block.bytes)).ok_or(Ending::NotAllocated)?;
            }
            if program.has_advised(range) {
                return Err(Ending::ProgramAdvice);
            }
        }
        Ok(())
    }

    fn add_one(&mut self, call: &Call, program: &Program) -> Result<(), Ending> {
        let sequence = call.stamp.sequence;
        if self.last_sequence.replace(sequence).is_some_and(|last| sequence != last.wrapping_add(1)) {
            return Err(Ending::Gap);
        }
        match call.action {
            Action::Free { address, .. } => {
                let freed = program
                    .block_from(address)
                    .map_or(address..address.saturating_add(1), |block| address..address.saturating_add(block.bytes));
                if self.overlaps(&freed) { Err(Ending::Freed) } else { Ok(()) }
            }
            Action::Advise { address, bytes, advice, .. } => {
                let (subject, is_given) = Subject::of(advice);
                let is_against = is_given && subject != Subject::Access;
                let range = address..address.saturating_add(bytes);
                if is_against && self.overlaps(&range) { Err(Ending::ProgramAdvice) } else { Ok(()) }
            }
            _ => call.token().map_or(Ok(()), |token| self.launch(token, call.number)),
        }
    }

    fn overlaps(&self, range: &Range<u64>) -> bool {
        let first = self.ranges.partition_point(|there| there.end <= range.start);
        self.ranges.get(first).is_some_and(|there| there.start < range.end)
    }

    fn launch(&mut self, token: Token, number: Option<u32>) -> Result<(), Ending> {
        let period = self.tokens.len().max(1) as u64;
        if self.last.is_none() {
            // The nearest launch of this number.
            let since = number.map(|number| i64::from(number.wrapping_sub(self.first_launch).cast_signed()));
            if since.is_none_or(|since| since.rem_euclid(period.cast_signed()) != 0) {
                return Ok(());
            }
        }
        let op = usize::try_from(self.launches % period).unwrap_or(0);
        if number.is_none() || self.last.is_some_and(|last| number != Some(last.wrapping_add(1))) {
            return Err(Ending::Missing { op });
        }
        let is_planned = self
            .tokens
            .get(op)
            .is_some_and(|planned| planned.signature == token.signature && planned.matches_pointers(token.pointers));
        if !is_planned {
            return Err(Ending::Drifted { op });
        }
        self.last = number;
        let launch = self.launches;
        self.launches += 1;
        self.iterations += u64::from(self.launches.is_multiple_of(period));
        self.begin_moves(launch, op, period);
        Ok(())
    }

    fn begin_moves(&mut self, launch: u64, op: usize, period: u64) {
        let first = self.moves.partition_point(|step| (step.begin_op as usize) < op);
        let begins = self.moves.iter().enumerate().skip(first).take_while(|(_, step)| step.begin_op as usize == op);
        for (at, step) in begins {
            if self.begun.len() >= BEGUN_MAX {
                self.skipped += 1;
                continue;
            }
            // Distance to the next launch with index `op_ahead`.
            let ahead = |op_ahead: u32| (u64::from(op_ahead) + period - 1 - op as u64) % period + 1;
            let deadline_launch = step.expiry_op.or(step.wait_op).map(|op| launch + ahead(op));
            self.begun.push(Begun { at, step: *step, deadline_launch });
        }
    }
}

const fn range_of(step: &Move) -> Range<u64> {
    step.begin..step.begin.saturating_add(step.bytes)
}
