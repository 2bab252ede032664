//! Order in which the search tries blocks with the same lowest offset. An instance is easy in one
//! order and hopeless in the next.
#![expect(clippy::indexing_slicing, reason = "arcs and sections are those of one Arcs")]

use super::super::super::arcs::{Arc, Arcs};

/// Figure of a block; larger ones go first.
#[derive(Clone, Copy)]
pub(super) enum Figure {
    /// Peak of live bytes during its lifetime, of the blocks that are ordered.
    Fullest,
    /// Lifetime in steps.
    Steps,
    /// Bytes times steps.
    AreaInSteps,
    /// Lifetime in sections.
    Sections,
    /// Bytes times sections.
    Area,
}

/// Figures of a lexicographic order, the most significant first.
pub(super) type Importance = [Figure; 3];

/// Orders that are tried in turn. Of the orders by the fullest section, each of these is quick
/// where the others time out.
pub(super) const IMPORTANCE: [Importance; 3] = {
    use Figure::{Area, AreaInSteps, Fullest, Sections, Steps};
    [[Fullest, Steps, AreaInSteps], [Fullest, Sections, Area], [Fullest, Area, Sections]]
};

/// Sorts arcs by importance.
pub(super) fn order(arcs: &Arcs, mut arcs_to_sort: Vec<usize>, importance: Importance) -> Vec<usize> {
    let mut load = vec![0_u64; arcs.sections()];
    for &arc in &arcs_to_sort {
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
    arcs_to_sort.sort_by_cached_key(|&arc| std::cmp::Reverse(importance.map(|which| figure(arc, which))));
    arcs_to_sort
}
