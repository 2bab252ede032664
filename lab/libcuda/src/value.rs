//! Values in memory that streams wait for.
#![expect(unsafe_code, reason = "a value is copied to a variable of the driver")]

use std::{thread, time::Duration};

use ptx::MemoryFault;

use crate::backend::{Backend, Place};

/// Shortest and longest pause between two looks at a value.
const PAUSES: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));

/// Comparison of a value in memory with that of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// Not before it, on a circle of all values.
    GreaterOrEqual,
    /// The same.
    Equal,
    /// Has a bit in common.
    And,
    /// A bit is in neither.
    Nor,
}

/// Wait for a value of 4 or 8 bytes in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// Where it is.
    pub(crate) place: Place,
    /// Size.
    pub(crate) bytes: usize,
    /// Value to compare with.
    pub(crate) value: u64,
    /// Comparison.
    pub(crate) comparison: Comparison,
}

impl Wait {
    /// Looks at the value again and again, until the comparison is true or `is_over` is.
    ///
    /// # Errors
    /// An address that is not allocated.
    pub(crate) fn perform(
        &self,
        backend: &dyn Backend,
        device: usize,
        is_over: impl Fn() -> bool,
    ) -> Result<(), MemoryFault> {
        let mut pause = PAUSES.0;
        while !self.is_met_by(self.read(backend, device)?) && !is_over() {
            thread::sleep(pause);
            pause = (pause * 2).min(PAUSES.1);
        }
        Ok(())
    }

    fn read(&self, backend: &dyn Backend, device: usize) -> Result<u64, MemoryFault> {
        let mut word = [0u8; 8];
        let address = word.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: a variable of 8 bytes, which lives until the copy is done.
        let to = unsafe { Place::new(address) };
        backend.copy(device, to, self.place, self.bytes.min(word.len()) as u64)?;
        Ok(u64::from_le_bytes(word))
    }

    fn is_met_by(&self, found: u64) -> bool {
        let unused_bits = 64 - 8 * self.bytes.min(8);
        // The highest bit is that of the value, as its sign is.
        let [found, value] = [found, self.value].map(|value| value << unused_bits);
        match self.comparison {
            Comparison::GreaterOrEqual => found.wrapping_sub(value).cast_signed() >= 0,
            Comparison::Equal => found == value,
            Comparison::And => found & value != 0,
            Comparison::Nor => !(found | value) >> unused_bits != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_met(comparison: Comparison, bytes: usize, found: u64, value: u64) -> bool {
        // SAFETY: not accessed.
        let place = unsafe { Place::new(0) };
        Wait { place, bytes, value, comparison }.is_met_by(found)
    }

    #[test]
    fn comparisons_are_of_the_size_of_the_value() {
        let max = u64::from(u32::MAX);
        for (comparison, bytes, found, value, met) in [
            (Comparison::GreaterOrEqual, 4, 7, 7, true),
            (Comparison::GreaterOrEqual, 4, 6, 7, false),
            // 2 comes after the largest value.
            (Comparison::GreaterOrEqual, 4, 2, max, true),
            (Comparison::GreaterOrEqual, 8, 2, max, false),
            (Comparison::GreaterOrEqual, 8, 2, u64::MAX, true),
            (Comparison::Equal, 4, max + 6, 5, true),
            (Comparison::Equal, 8, max + 6, 5, false),
            (Comparison::And, 4, 6, 4, true),
            (Comparison::And, 4, 6, 1, false),
            (Comparison::And, 4, max + 1, max + 1, false),
            (Comparison::Nor, 4, max, 0, false),
            (Comparison::Nor, 8, max, 0, true),
            (Comparison::Nor, 4, max - 1, 0, true),
        ] {
            assert_eq!(
                is_met(comparison, bytes, found, value),
                met,
                "{comparison:?} of {bytes}: {found:#x}, {value:#x}"
            );
        }
    }
}
