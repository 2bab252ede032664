//! Blocks of a circle as arcs over sections: the input of both planners of placements.
//!
//! A section is the stretch from a step at which blocks begin to the next such step. Two blocks are
//! alive at the same time if and only if they share a section, as one of them begins while the
//! other lives. So steps at which no block begins do not matter.
#![expect(clippy::indexing_slicing, reason = "places and sections are those that this file hands out")]

use trace::Circle;

use super::placement::{Placement, Slot};

/// One copy of a span.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arc {
    /// Its first section.
    pub(super) first: usize,
    /// Number of its sections, around the end of the circle: at least one, at most all.
    pub(super) count: usize,
    /// Steps at which it is alive.
    pub(super) steps: u64,
    pub(super) bytes: u64,
    span: usize,
    copy: u32,
}

/// Arcs of a circle, by their first section.
#[derive(Debug)]
pub(super) struct Arcs {
    values: Vec<Arc>,
    sections: usize,
    /// Arcs that begin at section s lie at `starts[s]..starts[s + 1]`.
    starts: Vec<usize>,
    /// Segment tree over the sections: each node has the arcs that cover the node, but not its
    /// parent. Leaves are at `sections..`.
    cover: Vec<Vec<u32>>,
}

impl Arcs {
    pub(super) fn of(circle: &Circle) -> Self {
        let mut steps: Vec<u64> = circle.spans.iter().map(|span| span.start).collect();
        steps.sort_unstable();
        steps.dedup();
        let sections = steps.len();
        let before = |step: u64| steps.partition_point(|&own| own < step);
        let mut arcs = Vec::new();
        for (at, span) in circle.spans.iter().enumerate() {
            let first = before(span.start);
            let end = span.start + span.length.min(circle.period);
            let end_section = if end > circle.period { sections + before(end - circle.period) } else { before(end) };
            let count = (end_section - first).clamp(1, sections);
            arcs.extend((0..span.copies).map(|copy| Arc {
                first,
                count,
                steps: span.length,
                bytes: span.bytes,
                span: at,
                copy,
            }));
        }
        arcs.sort_by_key(|arc| arc.first);
        let starts = (0..=sections).map(|section| arcs.partition_point(|arc| arc.first < section)).collect();
        let mut cover = vec![Vec::new(); 2 * sections];
        for (place, arc) in (0_u32..).zip(&arcs) {
            let end = arc.first + arc.count;
            for (mut low, mut high) in [(arc.first, end.min(sections)), (0, end.saturating_sub(sections))] {
                (low, high) = (low + sections, high + sections);
                while low < high {
                    if low % 2 == 1 {
                        cover[low].push(place);
                        low += 1;
                    }
                    if high % 2 == 1 {
                        high -= 1;
                        cover[high].push(place);
                    }
                    (low, high) = (low / 2, high / 2);
                }
            }
        }
        Self { values: arcs, sections, starts, cover }
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    pub(super) fn sections(&self) -> usize {
        self.sections
    }

    pub(super) fn values(&self) -> &[Arc] {
        &self.values
    }

    pub(super) fn bytes(&self, arc: usize) -> u64 {
        self.values[arc].bytes
    }

    /// Sections of an arc, in up to two runs.
    pub(super) fn runs(&self, arc: usize) -> [std::ops::Range<usize>; 2] {
        let Arc { first, count, .. } = self.values[arc];
        let end = first + count;
        [first..end.min(self.sections), 0..end.saturating_sub(self.sections)]
    }

    /// Arcs that overlap an arc at some time, without the arc itself. An arc that both begins in it
    /// and reaches it around the end of the circle comes twice.
    ///
    /// Complexity: the logarithm of the number of sections, plus the number of such arcs.
    pub(super) fn overlapping(&self, arc: usize) -> impl Iterator<Item = usize> {
        let Arc { first, count, .. } = self.values[arc];
        let leaf = first + self.sections;
        let nodes = std::iter::successors(Some(leaf), |&node| Some(node / 2).filter(|&above| above > 0));
        let alive = nodes.flat_map(|node| self.cover[node].iter().map(|&place| place as usize));
        let end = first + count;
        let ranges = [(first + 1, end.min(self.sections)), (0, end.saturating_sub(self.sections))];
        let begin = ranges.into_iter().filter(|(low, high)| low < high);
        let begin = begin.flat_map(|(low, high)| self.starts[low]..self.starts[high]);
        alive.chain(begin).filter(move |&other| other != arc)
    }

    /// Peak of live bytes.
    pub(super) fn peak_bytes(&self) -> u64 {
        let mut live = vec![0; self.sections];
        for arc in 0..self.len() {
            for run in self.runs(arc) {
                live[run].iter_mut().for_each(|live| *live += self.bytes(arc));
            }
        }
        live.into_iter().max().unwrap_or(0)
    }

    /// The placement with these offsets, by arc.
    pub(super) fn placement(&self, offsets: &[u64]) -> Placement {
        let pairs = self.values.iter().zip(offsets);
        let mut slots: Vec<_> =
            pairs.clone().map(|(arc, &offset)| Slot { span: arc.span, copy: arc.copy, offset }).collect();
        slots.sort_unstable_by_key(|slot| (slot.span, slot.copy));
        let pool_bytes = pairs.map(|(arc, offset)| offset + arc.bytes).max().unwrap_or(0);
        Placement { slots, pool_bytes }
    }
}

#[cfg(test)]
mod tests {
    use trace::Span;

    use super::*;

    #[test]
    fn arcs_are_beside_those_that_share_a_step_around_the_end_too() {
        let span = |start, length| Span { source: 0, bytes: 1, start, length, copies: 1 };
        // No span begins at 1, 2 and 4 to 8.
        let spans = vec![span(0, 1), span(0, 4), span(3, 6), span(9, 1), span(9, 2), span(9, 10)];
        let circle = Circle { period: 10, spans, persistent_bytes: 0, turns: 1 };
        let arcs = Arcs::of(&circle);
        for (one, span) in circle.spans.iter().enumerate() {
            let mut own: Vec<_> = arcs.overlapping(one).collect();
            own.sort_unstable();
            own.dedup();
            let others = circle.spans.iter().enumerate();
            let others = others.filter(|&(at, other)| at != one && span.overlaps(other, circle.period));
            assert_eq!(own, others.map(|(at, _)| at).collect::<Vec<_>>(), "{span:?}");
        }
        assert_eq!(arcs.peak_bytes(), circle.peak_bytes());
    }
}
