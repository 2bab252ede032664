//! Planning: computes the best moves of several methods for the workload of an iteration.
//!
//! A workload is untrusted input, so methods may take any amount of time and memory. A follower
//! therefore passes it to an [`Outliner`], which may answer later. In tests and tools, this is a
//! list of methods, which answers immediately. In uvmd, it is a process, killed when it exceeds its
//! limits: [`wire`] has the messages, the process's side and the validation of its answer.

pub mod wire;

use std::time::Duration;

use crate::{
    methods::{Method, Outline, Problem, Workload},
    pieces::Pieces,
    refusal::Refusal,
    traffic::Traffic,
};

/// Maximum number of pieces that planners accept.
const PLANNED_PIECES_MAX: usize = 1 << 16;
/// Maximum number of uses of pieces by launches; each takes a few bytes of a message.
const USES_MAX: usize = 1 << 20;
/// Maximum number of pairs of a piece and a launch. The time and memory that methods spend on them
/// are limited by the planner process.
const PAIRS_MAX: usize = 1 << 28;

/// Runs planners and returns their best outline, immediately or later.
pub trait Outliner {
    /// Starts to outline a workload, in place of the previous one. Returns an immediate answer, if
    /// any.
    fn start(&mut self, workload: Workload) -> Option<Answer>;

    /// The answer, if ready.
    fn poll(&mut self) -> Option<Answer>;

    /// Status while the answer is pending.
    fn status(&self) -> &'static str {
        "its plan is being computed"
    }

    /// Cancels the outline in progress.
    fn cancel(&mut self);

    /// Leaves the queue of waiting followers until the next [`poll`](Self::poll), so that others do
    /// not wait for this one.
    fn pause(&mut self) {}

    /// Delay from the last answer, a refusal, until a retry is possible; `None` if it is final.
    fn retry_delay(&self) -> Option<Duration> {
        None
    }

    /// Whether the retry delay has passed.
    fn is_retry_due(&self) -> bool {
        false
    }
}

/// Answer of planners: their best outline, or a refusal.
pub type Answer = Result<BestOutline, Refusal>;

/// Best outline of several methods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BestOutline {
    /// Name of the method.
    pub method: &'static str,
    /// The outline.
    pub outline: Outline,
    /// Traffic of the driver alone.
    pub traffic_without_plan: Traffic,
}

impl Outliner for Vec<Box<dyn Method>> {
    fn start(&mut self, workload: Workload) -> Option<Answer> {
        Some(best_outline(self, workload))
    }

    fn poll(&mut self) -> Option<Answer> {
        None
    }

    fn cancel(&mut self) {}
}

/// Outline with the fewest bytes over the link; the first method wins a tie.
///
/// # Errors
/// If all methods refuse, the first refusal.
pub fn best_outline(methods: &[Box<dyn Method>], workload: Workload) -> Answer {
    let mut best = BestSoFar::of(workload)?;
    for method in methods {
        best.try_method(&**method);
    }
    best.answer()
}

/// Best outline of the methods tried so far.
struct BestSoFar {
    problem: Problem,
    outline: Option<(&'static str, Outline)>,
    /// The first refusal.
    refusal: Option<Refusal>,
}

impl BestSoFar {
    fn of(workload: Workload) -> Result<Self, Refusal> {
        check_size(&workload.pieces)?;
        Ok(Self { problem: Problem::from(workload), outline: None, refusal: None })
    }

    /// Tries a method. Returns whether its outline is the best so far.
    fn try_method(&mut self, method: &dyn Method) -> bool {
        let total = |outline: &Outline| outline.traffic.bytes.total();
        match method.outline(&self.problem) {
            Ok(outline) if self.outline.as_ref().is_none_or(|(_, best)| total(&outline) < total(best)) => {
                self.outline = Some((method.name(), outline));
                return true;
            }
            Ok(_) => {}
            Err(reason) => self.refusal = self.refusal.take().or(Some(reason)),
        }
        false
    }

    fn answer(&self) -> Answer {
        let (method, outline) = self.outline.clone().ok_or_else(|| self.refusal.clone().unwrap_or(Refusal::NoRoom))?;
        Ok(BestOutline { method, outline, traffic_without_plan: self.problem.traffic_without_plan() })
    }
}

/// Checks that the size of a workload is within the limits of planners.
///
/// # Errors
/// If it exceeds a limit.
pub(crate) fn check_size(pieces: &Pieces) -> Result<(), Refusal> {
    let (launches, count) = (pieces.ops, pieces.all.len());
    let uses = pieces.all.iter().map(|piece| piece.uses.len()).sum();
    if count > PLANNED_PIECES_MAX || uses > USES_MAX || count.saturating_mul(launches) > PAIRS_MAX {
        let (pieces_max, uses_max, pairs_max) = (PLANNED_PIECES_MAX, USES_MAX, PAIRS_MAX);
        return Err(Refusal::TooLarge { launches, pieces: count, uses, pieces_max, uses_max, pairs_max });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use trace::BlockId;

    use super::*;
    use crate::pieces::Piece;

    /// `count` pieces with `uses` uses each.
    fn pieces(ops: usize, count: usize, uses: usize) -> Pieces {
        let piece = |at: usize| Piece {
            block: BlockId(0),
            address: (at as u64) << 21,
            bytes: 2 << 20,
            is_managed: true,
            is_movable: true,
            outlives: true,
            uses: (0..uses).collect(),
        };
        Pieces { ops, all: (0..count).map(piece).collect() }
    }

    #[test]
    fn oversized_workload_is_refused_before_planning() {
        assert_eq!(check_size(&pieces(16_384, 1024, 64)), Ok(()));
        // A training with 6,000 tensors and launches.
        assert_eq!(check_size(&pieces(6000, 6000, 4)), Ok(()));
        for (ops, count, uses) in [(1024, 1024, 1025), (1, PLANNED_PIECES_MAX + 1, 1), (16_384, 16_385, 1)] {
            let refused = check_size(&pieces(ops, count, uses));
            let is_of = |launches, pieces, all| (launches, pieces, all) == (ops, count, count * uses);
            assert!(
                matches!(refused, Err(Refusal::TooLarge { launches, pieces, uses, .. }) if is_of(launches, pieces, uses))
            );
        }
    }
}
