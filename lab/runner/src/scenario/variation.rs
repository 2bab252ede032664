//! Variations between runs of one scenario with the same work: a seed, and a factor of the access
//! rates.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::mix::mix;

/// Variation of a run from the text of its scenario.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Variation {
    /// Seed; 0 for no variation. Other seeds change random orders and the length of pauses, and
    /// delay processes.
    pub(crate) seed: u64,
    /// Factor of all access rates.
    pub(crate) access_rate_factor: f64,
}

/// Maximum delay of a process.
const MAX_DELAY_MS: u64 = 50;
/// Maximum change of a pause, in percent.
const MAX_PAUSE_CHANGE_PERCENT: u64 = 10;

impl Default for Variation {
    fn default() -> Self {
        Self { seed: 0, access_rate_factor: 1.0 }
    }
}

impl Variation {
    /// Seed of a random order.
    pub(crate) const fn order_seed(&self, nominal: u64) -> u64 {
        if self.seed == 0 { nominal } else { mix(nominal ^ mix(self.seed)) }
    }

    /// Duration of a pause, varied by process and step.
    pub(crate) fn pause(&self, nominal: Duration, process: &str, step: &str) -> Duration {
        let percent = match self.hash(&format!("{process}/{step}")) {
            None => 100,
            Some(hash) => 100 - MAX_PAUSE_CHANGE_PERCENT + hash % (2 * MAX_PAUSE_CHANGE_PERCENT + 1),
        };
        nominal * u32::try_from(percent).unwrap_or(100) / 100
    }

    /// Delay of a process before its first step.
    pub(crate) fn delay(&self, process: &str) -> Duration {
        Duration::from_millis(self.hash(process).map_or(0, |hash| hash % (MAX_DELAY_MS + 1)))
    }

    /// Hash of the seed and a text; `None` without a seed.
    fn hash(&self, text: &str) -> Option<u64> {
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
    fn without_a_seed_nothing_varies() {
        let none = Variation::default();
        assert_eq!((none.order_seed(7), none.pause(SECOND, "p", "1"), none.delay("p")), (7, SECOND, Duration::ZERO));
    }

    #[test]
    fn a_seed_varies_orders_pauses_and_delays_a_little_and_reproducibly() {
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
