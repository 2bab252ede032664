//! In which order the search tries blocks that might begin at the same height. An instance is easy in one order and hopeless in the next.
#![expect(clippy::indexing_slicing, reason = "arcs and sections are those of one Arcs")]

use super::super::super::arcs::{Arc, Arcs};

/// What of a block counts; the more of it, the earlier.
#[derive(Clone, Copy)]
pub(super) enum Figure {
    /// The most bytes alive at once while it is, of those that are to be ordered.
    Fullest,
    /// For how many steps it is alive.
    Steps,
    /// Its bytes times its steps.
    AreaInSteps,
    /// For how many sections it is alive.
    Sections,
    /// Its bytes times its sections.
    Area,
}

/// Figures, the one that counts most first.
pub(super) type Importance = [Figure; 3];

/// Those that are tried in turn: of the orders by the fullest place, those of which each is quick where the others give up.
pub(super) const IMPORTANCE: [Importance; 3] = {
    use Figure::{Area, AreaInSteps, Fullest, Sections, Steps};
    [[Fullest, Steps, AreaInSteps], [Fullest, Sections, Area], [Fullest, Area, Sections]]
};

/// Some arcs, ordered by importance.
pub(super) fn order(arcs: &Arcs, mut some: Vec<usize>, importance: Importance) -> Vec<usize> {
    let mut load = vec![0_u64; arcs.sections()];
    for &arc in &some {
        for run in arcs.runs(arc) {
            load[run].iter_mut().for_each(|load| *load += arcs.bytes(arc));
        }
    }
    let figure = |arc: usize, figure: Figure| {
        let Arc { steps, bytes, count, .. } = arcs.values()[arc];
        match figure {
            Figure::Fullest => arcs.runs(arc).into_iter().flat_map(|run| &load[run]).copied().max().unwrap_or(0),
            Figure::Steps => steps,
            Figure::AreaInSteps => bytes.saturating_mul(steps),
            Figure::Sections => count as u64,
            Figure::Area => bytes.saturating_mul(count as u64),
        }
    };
    some.sort_by_cached_key(|&arc| std::cmp::Reverse(importance.map(|which| figure(arc, which))));
    some
}
