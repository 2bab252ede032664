//! What makes runs of one scenario differ though they do the same work: a seed, and how much each access stands for.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::mix::mix;

/// How a run differs from the scenario as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Variation {
    /// 0: as it is written. Else random orders are others, pauses a little longer or shorter, and processes begin a little later.
    pub(crate) seed: u64,
    /// All access rates are multiplied by this.
    pub(crate) access_rate_factor: f64,
}

/// A process begins so much later, at most.
const LATE_MS: u64 = 50;
/// A pause is so many hundredths longer or shorter, at most.
const PAUSE_PERCENT: u64 = 10;

impl Default for Variation {
    fn default() -> Self {
        Self { seed: 0, access_rate_factor: 1.0 }
    }
}

impl Variation {
    /// The seed of a random order.
    pub(crate) const fn order_seed(&self, written: u64) -> u64 {
        if self.seed == 0 { written } else { mix(written ^ mix(self.seed)) }
    }

    /// A pause, by where it is written.
    pub(crate) fn pause(&self, written: Duration, process: &str, step: &str) -> Duration {
        let hundredths = match self.number(&format!("{process}/{step}")) {
            None => 100,
            Some(number) => 100 - PAUSE_PERCENT + number % (2 * PAUSE_PERCENT + 1),
        };
        written * u32::try_from(hundredths).unwrap_or(100) / 100
    }

    /// How much later a process begins its steps.
    pub(crate) fn delay(&self, process: &str) -> Duration {
        Duration::from_millis(self.number(process).map_or(0, |number| number % (LATE_MS + 1)))
    }

    /// One that only depends on the seed and a text.
    fn number(&self, text: &str) -> Option<u64> {
        let add = |sum, byte: u8| mix(sum ^ u64::from(byte));
        (self.seed != 0).then(|| text.bytes().fold(mix(self.seed), add))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn seeded(seed: u64) -> Variation {
        Variation { seed, ..Variation::default() }
    }

    #[test]
    fn without_a_seed_everything_is_as_it_is_written() {
        let none = Variation::default();
        assert_eq!((none.order_seed(7), none.pause(SECOND, "p", "1"), none.delay("p")), (7, SECOND, Duration::ZERO));
    }

    #[test]
    fn a_seed_changes_orders_pauses_and_beginnings_a_little_and_always_in_the_same_way() {
        let of = |seed| {
            let seeded = seeded(seed);
            (seeded.order_seed(7), seeded.pause(SECOND, "p", "1"), seeded.delay("p"))
        };
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(4));
        for seed in 1..100 {
            let (_, pause, delay) = of(seed);
            assert!((900..=1100).contains(&pause.as_millis()) && delay.as_millis() <= 50, "{pause:?} {delay:?}");
        }
        assert_ne!(seeded(3).pause(SECOND, "p", "1"), seeded(3).pause(SECOND, "p", "2"), "each step has its own");
    }
}
