//! Layout of functions' parameters, as reported by the driver at a function's first launch.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::{mapping, system::Errno};

/// Maximum number of functions in the table. Others are queried at each launch.
const FUNCTIONS_MAX: usize = 16384;
/// Maximum number of parameters of all functions together.
const PARAMETERS_MAX: usize = 128 << 10;
/// Maximum number of entries that a search probes.
const PROBES_MAX: usize = 16;
/// Words of an entry: handle of the function, epoch, and the index of its first parameter with the
/// number of its parameters. They are written once, in this order: a search that sees the last word
/// sees all of them.
const ENTRY_WORDS: usize = 3;
/// Maximum bytes of a function's parameters, by the CUDA programming guide.
pub(crate) const PARAMETER_BYTES_MAX: usize = 32764;

/// Location of a parameter among the arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parameter {
    /// Offset.
    pub(crate) offset_bytes: u16,
    /// Size.
    pub(crate) bytes: u16,
}

impl Parameter {
    /// Creates a parameter from the driver's report; `None` if it is out of bounds.
    pub(crate) fn new(offset_bytes: usize, bytes: usize) -> Option<Self> {
        let end = offset_bytes.checked_add(bytes)?;
        if end > PARAMETER_BYTES_MAX {
            return None;
        }
        Some(Self { offset_bytes: u16::try_from(offset_bytes).ok()?, bytes: u16::try_from(bytes).ok()? })
    }
}

/// Result of a search for the parameters of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// In the table: index of the first parameter, and count.
    Found(usize, usize),
    /// In the table: the driver does not report the parameters.
    NotReported,
    /// Not in the table.
    NotFound,
}

impl Lookup {
    /// Decodes an entry's last word, which is 0 until it is written.
    #[expect(clippy::cast_possible_truncation, reason = "parts of a word")]
    const fn from_word(word: u64) -> Self {
        match word {
            0 => Self::NotFound,
            NOT_REPORTED => Self::NotReported,
            _ => Self::Found((word >> 32) as usize, word as u32 as usize & !IS_REPORTED),
        }
    }
}

const NOT_REPORTED: u64 = u64::MAX;
/// Flag in an entry's last word, which makes it nonzero for a function without parameters.
const IS_REPORTED: usize = 1 << 31;

/// Table of functions' parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameters {
    /// Current epoch. Entries of other epochs are invalid, as their handles may have been reused.
    epoch: &'static AtomicU64,
    used: &'static AtomicU64,
    entries: &'static [AtomicU64],
    reported: &'static [AtomicU64],
}

impl Parameters {
    /// Creates an empty table.
    ///
    /// # Errors
    /// Fails if its memory cannot be mapped.
    pub(crate) fn new() -> Result<Self, Errno> {
        let words = mapping::private(8 + FUNCTIONS_MAX * ENTRY_WORDS + PARAMETERS_MAX)?;
        let (head, rest) = words.split_at_checked(8).ok_or(Errno(0))?;
        let (entries, reported) = rest.split_at_checked(FUNCTIONS_MAX * ENTRY_WORDS).ok_or(Errno(0))?;
        let [epoch, used, ..] = head else { return Err(Errno(0)) };
        Ok(Self { epoch, used, entries, reported })
    }

    /// Invalidates all entries. To be called before a module is unloaded or a context ends, because
    /// the driver may then reuse the handles of functions.
    pub(crate) fn invalidate(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Entries that may hold a function, each as its words: handle, epoch, parameters.
    fn probe(&self, function: u64) -> impl Iterator<Item = [&'static AtomicU64; 3]> + use<> {
        let entries = self.entries;
        let hash = (function.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
        (0..PROBES_MAX).filter_map(move |probe| {
            let at = (hash + probe) % FUNCTIONS_MAX * ENTRY_WORDS;
            match entries.get(at..at + ENTRY_WORDS) {
                Some([handle, epoch, reported]) => Some([handle, epoch, reported]),
                _ => None,
            }
        })
    }

    /// Looks up the parameters of a function.
    pub(crate) fn find(&self, function: u64) -> Lookup {
        let now = self.epoch.load(Ordering::Acquire);
        for [handle, epoch, reported] in self.probe(function) {
            let reported = Lookup::from_word(reported.load(Ordering::Acquire));
            if reported != Lookup::NotFound
                && handle.load(Ordering::Relaxed) == function
                && epoch.load(Ordering::Relaxed) == now
            {
                return reported;
            }
        }
        Lookup::NotFound
    }

    /// Parameter at an index of the table.
    #[expect(clippy::cast_possible_truncation, reason = "parts of a word")]
    pub(crate) fn get(&self, at: usize) -> Parameter {
        let word = self.reported.get(at).map_or(0, |word| word.load(Ordering::Relaxed));
        Parameter { offset_bytes: (word >> 16) as u16, bytes: word as u16 }
    }

    /// Adds a function, if the table has room. `parameters`: `None` if the driver does not report
    /// them.
    pub(crate) fn insert(&self, function: u64, parameters: Option<impl Iterator<Item = Parameter> + Clone>) {
        let now = self.epoch.load(Ordering::Acquire);
        let free = self.probe(function).find(|[handle, ..]| {
            handle.load(Ordering::Relaxed) == 0
                && handle.compare_exchange(0, function, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        });
        let Some([_, epoch, reported]) = free else { return };
        epoch.store(now, Ordering::Relaxed);
        let Some(parameters) = parameters else {
            reported.store(NOT_REPORTED, Ordering::Release);
            return;
        };
        let count = parameters.clone().count();
        let first = usize::try_from(self.used.fetch_add(count as u64, Ordering::Relaxed)).unwrap_or(usize::MAX);
        let Some(words) = first.checked_add(count).and_then(|end| self.reported.get(first..end)) else { return };
        for (word, Parameter { offset_bytes, bytes }) in words.iter().zip(parameters) {
            word.store(u64::from(offset_bytes) << 16 | u64::from(bytes), Ordering::Relaxed);
        }
        reported.store((first as u64) << 32 | (IS_REPORTED | count) as u64, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(count: u16) -> impl Iterator<Item = Parameter> + Clone {
        (0..count).map(|at| Parameter { offset_bytes: 8 * at, bytes: 8 })
    }

    #[test]
    fn inserted_parameters_are_found() {
        let table = Parameters::new().unwrap();
        assert_eq!(table.find(0x5000), Lookup::NotFound);
        table.insert(0x5000, Some(parameters(3)));
        table.insert(0x6000, Some(parameters(0)));
        table.insert(0x7000, None::<core::iter::Empty<Parameter>>);
        let Lookup::Found(first, 3) = table.find(0x5000) else { panic!("{:?}", table.find(0x5000)) };
        assert!((first..).zip(parameters(3)).all(|(at, parameter)| table.get(at) == parameter));
        assert!(matches!(table.find(0x6000), Lookup::Found(_, 0)));
        assert_eq!(table.find(0x7000), Lookup::NotReported);
    }

    #[test]
    fn functions_of_an_unloaded_module_are_not_found() {
        let table = Parameters::new().unwrap();
        table.insert(0x5000, Some(parameters(3)));
        table.invalidate();
        assert_eq!(table.find(0x5000), Lookup::NotFound);
        table.insert(0x5000, Some(parameters(1)));
        assert!(matches!(table.find(0x5000), Lookup::Found(_, 1)));
    }

    #[test]
    fn functions_beyond_the_capacity_are_not_found() {
        let table = Parameters::new().unwrap();
        for at in 1..=FUNCTIONS_MAX as u64 * 2 {
            table.insert(at << 4, Some(parameters(9)));
        }
        let known = (1..=FUNCTIONS_MAX as u64 * 2).filter(|at| table.find(at << 4) != Lookup::NotFound).count();
        assert!((PARAMETERS_MAX / 9 - 9..=FUNCTIONS_MAX).contains(&known), "{known}");
        assert_eq!(table.find(5), Lookup::NotFound);
    }

    #[test]
    fn parameter_beyond_the_arguments_is_rejected() {
        assert_eq!(Parameter::new(PARAMETER_BYTES_MAX - 8, 8).map(|parameter| parameter.bytes), Some(8));
        assert_eq!(Parameter::new(PARAMETER_BYTES_MAX, 8), None);
        assert_eq!(Parameter::new(usize::MAX, 8), None);
    }
}
