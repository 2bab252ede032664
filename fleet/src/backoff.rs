//! Watches of the API server: their maximum duration, and the back-off between attempts.

use std::time::Duration;

use kube::runtime::utils::Backoff;

use crate::hash::hash;

/// Time after which the API server ends a watch, so that a dead connection is noticed.
pub const WATCH_SECONDS: u32 = 240;
/// First pause.
const FIRST: Duration = Duration::from_millis(500);
/// Longest pause.
pub const LONGEST: Duration = Duration::from_secs(10);

/// Back-off: pauses that double up to the longest, with an offset per node, so that after an
/// interruption the nodes do not reconnect at the same time.
#[derive(Clone, Debug)]
pub struct NodeBackoff {
    next: Duration,
    of_node: Duration,
}

impl NodeBackoff {
    /// Back-off of a node.
    #[must_use]
    pub fn of(node: &str) -> Self {
        Self { next: FIRST, of_node: Duration::from_millis(hash(node) % 1000) }
    }
}

impl Iterator for NodeBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.next + self.of_node;
        self.next = (self.next * 2).min(LONGEST);
        Some(pause.min(LONGEST))
    }
}

impl Backoff for NodeBackoff {
    fn reset(&mut self) {
        self.next = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest_and_begin_again() {
        let mut pauses = NodeBackoff::of("gpu-1");
        let first = pauses.next().unwrap();
        assert!(first >= FIRST && first < FIRST + Duration::from_secs(1));
        assert!(pauses.next().unwrap() > first);
        assert_eq!(pauses.by_ref().take(6).last(), Some(LONGEST));
        pauses.reset();
        assert_eq!(pauses.next(), Some(first));
        assert_ne!(NodeBackoff::of("gpu-2").next(), Some(first));
    }
}
