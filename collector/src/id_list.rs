//! Lists of processes, or users, in messages.

/// Number of those that are named.
const NAMED_MAX: usize = 4;

/// The first ids, as in "7, 8, 9, 10, ...".
pub(crate) fn of(ids: impl ExactSizeIterator<Item = u32>) -> String {
    let more = if ids.len() > NAMED_MAX { ", ..." } else { "" };
    let named: Vec<_> = ids.take(NAMED_MAX).map(|id| id.to_string()).collect();
    named.join(", ") + more
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_four_are_named() {
        assert_eq!([1..1, 1..3, 1..5, 1..6].map(of), ["", "1, 2", "1, 2, 3, 4", "1, 2, 3, 4, ..."]);
    }
}
