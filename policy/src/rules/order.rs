//! Precedence of overrides.

use std::cmp::{Ordering, Reverse};

use model::{Criterion, Override, Selector};

use super::matching::{ANY, is_pattern};

/// Order of precedence: `Less` if the first override is selected where both match.
pub(super) fn precedence(one: &Override, other: &Override) -> Ordering {
    let key = |each: &Override| (Reverse(each.priority), Reverse(specificity(&each.selector)));
    key(one).cmp(&key(other)).then_with(|| one.id.cmp(&other.id))
}

/// Why `first` takes precedence over `second`, as the end of a sentence.
pub(super) fn precedence_reason(first: &Override, second: &Override) -> &'static str {
    if first.priority != second.priority {
        "has the higher priority"
    } else if specificity(&first.selector) != specificity(&second.selector) {
        "is more specific"
    } else {
        "comes first by name"
    }
}

/// Weight of each criterion, the most specific criterion first: an exact text outweighs a pattern, a
/// longer beginning of an id a shorter one, and a cgroup one above it.
fn specificity(selector: &Selector) -> [usize; Criterion::COUNT] {
    let mut weights = [0; Criterion::COUNT];
    for criterion in selector.criteria() {
        if let Some(weight) = weights.get_mut(criterion.index()) {
            *weight = match criterion {
                Criterion::Cgroup(path) => 1 + path.matches('/').count(),
                // Beginnings of ids, of which the whole one is the longest.
                Criterion::Container(id) | Criterion::Pod(id) => 1 + id.chars().filter(|c| *c != ANY).count(),
                Criterion::Job(text) | Criterion::Executable(text) => 1 + usize::from(!is_pattern(text)),
                Criterion::Pid(_)
                | Criterion::StartTicks(_)
                | Criterion::Uid(_)
                | Criterion::Range(_)
                | Criterion::AllocationLargerThanBytes(_) => 1,
            };
        }
    }
    weights
}
