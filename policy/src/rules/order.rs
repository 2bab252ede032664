//! Which of two overrides comes first.

use std::cmp::{Ordering, Reverse};

use model::{Override, Selector};

use super::fit::is_pattern;

/// The first is before the second where both fit.
pub(super) fn precedence(one: &Override, other: &Override) -> Ordering {
    let key = |each: &Override| (Reverse(each.priority), Reverse(precision(&each.selector)));
    key(one).cmp(&key(other)).then_with(|| one.id.cmp(&other.id))
}

/// What put `first` before `second`.
pub(super) fn because(first: &Override, second: &Override) -> &'static str {
    if first.priority != second.priority {
        "has the higher priority"
    } else if precision(&first.selector) != precision(&second.selector) {
        "is more specific"
    } else {
        "comes first by name"
    }
}

/// How much is said about a process: by what names the smallest group of processes first, and exactly rather than by a pattern. Of two cgroups
/// the one further down says more; a part of the memory says more than all of it.
fn precision(selector: &Selector) -> [usize; 9] {
    let Selector {
        pid,
        start_ticks,
        executable,
        uid,
        cgroup,
        container,
        pod,
        job,
        range,
        allocation_larger_than_bytes,
    } = selector;
    let text = |text: &Option<String>| match text {
        None => 0,
        Some(text) if is_pattern(text) => 1,
        Some(_) => 2,
    };
    let depth = |path: &String| 1 + path.matches('/').count();
    [
        pid.map_or(0, |_| 1 + usize::from(start_ticks.is_some())),
        text(container),
        text(pod),
        text(job),
        cgroup.as_ref().map_or(0, depth),
        text(executable),
        usize::from(uid.is_some()),
        usize::from(range.is_some()),
        usize::from(allocation_larger_than_bytes.is_some()),
    ]
}
