//! Where what is left falls apart.
#![expect(clippy::indexing_slicing, reason = "arcs are those of one Arcs, and no part is empty")]

use super::super::super::arcs::Arcs;

/// What is alive at no time that another part is alive at too, the smallest parts first.
pub(super) fn parts(arcs: &Arcs, left: &[usize]) -> Vec<Vec<usize>> {
    // Arcs are numbered as they begin.
    let mut left = left.to_vec();
    left.sort_unstable();
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut end = 0;
    for arc in left {
        let own = arcs.values()[arc];
        match parts.last_mut() {
            Some(part) if own.first < end => part.push(arc),
            _ => parts.push(vec![arc]),
        }
        end = end.max(own.first + own.count);
    }
    // What crosses the circle's end belongs with what it meets at the beginning.
    if let Some(over) = end.checked_sub(arcs.sections()).filter(|&over| over > 0)
        && parts.len() > 1
    {
        let meets = parts.iter().take_while(|part| arcs.values()[part[0]].first < over).count();
        let last = parts.pop().unwrap_or_default();
        let mut joined: Vec<usize> = parts.drain(..meets.min(parts.len())).flatten().collect();
        joined.extend(last);
        parts.push(joined);
    }
    parts.sort_by_key(Vec::len);
    parts
}
