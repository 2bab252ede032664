//! Parameters of the driver's thrashing detection.

use serde::Deserialize;

use super::{MachineError, Sourced};

/// Maximum count of a page's events: the driver has three bits for it.
pub(crate) const MAX_EVENTS: u8 = 7;

/// The driver's thrashing detection: `uvm_perf_thrashing_*`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thrashing {
    /// Whether detection is on.
    pub enabled: Sourced<bool>,
    /// Consecutive moves of a page, each within a lapse of the previous one, that count as
    /// thrashing: 1 to 7.
    pub threshold: Sourced<u8>,
    /// Throttles after which a page is pinned: 1 to 255.
    pub pin_threshold: Sourced<u8>,
    /// Maximum interval between two moves of a page that count.
    pub lapse_ns: Sourced<u64>,
    /// Time for which a processor is throttled, in lapses: 1 to 100.
    pub nap_lapses: Sourced<u64>,
    /// Time without thrashing after which a block is reset, in lapses.
    pub epoch_lapses: Sourced<u64>,
    /// Time for which a page is pinned, in lapses; 0 is for ever.
    pub pin_lapses: Sourced<u64>,
    /// Maximum number of resets of a block after an epoch.
    pub max_resets: Sourced<u64>,
}

impl Thrashing {
    /// Checks the ranges that the driver accepts; it replaces values outside them.
    ///
    /// # Errors
    /// If a value is out of range.
    pub fn check(&self) -> Result<(), MachineError> {
        let Self { threshold, pin_threshold, lapse_ns, nap_lapses, epoch_lapses, .. } = self;
        let what = match () {
            () if !(1..=MAX_EVENTS).contains(&threshold.value) => "the threshold of thrashing",
            () if pin_threshold.value == 0 => "the threshold of pins",
            () if lapse_ns.value == 0 || epoch_lapses.value == 0 => "a lapse of thrashing",
            () if !(1..=100).contains(&nap_lapses.value) => "a nap",
            () => return Ok(()),
        };
        Err(MachineError::OutOfRange { what })
    }

    pub(crate) fn nap_ns(&self) -> u64 {
        self.lapse_ns.value.saturating_mul(self.nap_lapses.value)
    }

    pub(crate) fn epoch_ns(&self) -> u64 {
        self.lapse_ns.value.saturating_mul(self.epoch_lapses.value)
    }

    /// End of a pin that begins now; the maximum stands for ever.
    pub(crate) fn pinned_until_ns(&self, now_ns: u64) -> u64 {
        match self.pin_lapses.value {
            0 => u64::MAX,
            lapses => now_ns.saturating_add(self.lapse_ns.value.saturating_mul(lapses)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Machine;

    #[test]
    fn values_that_the_driver_would_replace_are_rejected() {
        let text = include_str!("../../../machines/h200.toml");
        for (value, wrong, what) in [
            ("threshold = { value = 3,", "threshold = { value = 8,", "the threshold of thrashing is out of range"),
            ("pin_threshold = { value = 10,", "pin_threshold = { value = 0,", "the threshold of pins is out of range"),
            ("lapse_ns = { value = 500_000,", "lapse_ns = { value = 0,", "a lapse of thrashing is out of range"),
            ("nap_lapses = { value = 1,", "nap_lapses = { value = 101,", "a nap is out of range"),
        ] {
            assert_eq!(Machine::parse(&text.replacen(value, wrong, 1)).unwrap_err().to_string(), what);
        }
    }
}
