//! The parameters of the driver's detection of thrashing.

use serde::Deserialize;

use super::{MachineError, Sourced};

/// Events of a page are counted up to here: the driver has three bits for them.
pub(crate) const MAX_EVENTS: u8 = 7;

/// The driver's detection of thrashing: `uvm_perf_thrashing_*`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Thrashing {
    /// Whether there is any.
    pub enabled: Sourced<bool>,
    /// So many moves of a page in a row, each within a lapse of the one before, are thrashing: 1 to 7.
    pub threshold: Sourced<u8>,
    /// After a processor was held back so often the page is pinned: 1 to 255.
    pub pin_threshold: Sourced<u8>,
    /// How soon after the last move of a page the next one counts.
    pub lapse_ns: Sourced<u64>,
    /// For how long a processor is held back, in lapses: 1 to 100.
    pub nap_lapses: Sourced<u64>,
    /// After so long without thrashing a block is as if it had never thrashed, in lapses.
    pub epoch_lapses: Sourced<u64>,
    /// For how long a page is pinned, in lapses; 0 is for ever.
    pub pin_lapses: Sourced<u64>,
    /// How often a block is reset after an epoch.
    pub max_resets: Sourced<u64>,
}

impl Thrashing {
    /// The ranges that the driver takes: it replaces what is beyond them.
    ///
    /// # Errors
    /// If a value is out of its range.
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

    /// Until when what is pinned now stays pinned; the greatest number is for ever.
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
    fn what_the_driver_would_replace_is_refused() {
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
