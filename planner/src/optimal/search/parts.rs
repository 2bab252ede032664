//! Decomposition of the remaining blocks.
#![expect(clippy::indexing_slicing, reason = "arcs are those of one Arcs, and no part is empty")]

use super::super::super::arcs::Arcs;

/// Parts that are never alive at the same time, the smallest first.
pub(super) fn parts(arcs: &Arcs, remaining: &[usize]) -> Vec<Vec<usize>> {
    // Arcs are numbered by their beginning.
    let mut remaining = remaining.to_vec();
    remaining.sort_unstable();
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut end = 0;
    for arc in remaining {
        let current = arcs.values()[arc];
        match parts.last_mut() {
            Some(part) if current.first < end => part.push(arc),
            _ => parts.push(vec![arc]),
        }
        end = end.max(current.first + current.count);
    }
    // Blocks that cross the end of the circle belong to the parts that they meet at its beginning.
    if let Some(overhang) = end.checked_sub(arcs.sections()).filter(|&overhang| overhang > 0)
        && parts.len() > 1
    {
        let meets = parts.iter().take_while(|part| arcs.values()[part[0]].first < overhang).count();
        let last = parts.pop().unwrap_or_default();
        let mut joined: Vec<usize> = parts.drain(..meets.min(parts.len())).flatten().collect();
        joined.extend(last);
        parts.push(joined);
    }
    parts.sort_by_key(Vec::len);
    parts
}
