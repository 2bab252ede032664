//! Layout of functions' parameters, as reported by the driver at a function's first launch.
//!
//! A cache of fixed size. The end of a module or of a context begins a new epoch, in which no entry
//! of another epoch is found; their slots are reused, and so is the memory of their layouts.
//!
//! No step waits for another thread. A slot is claimed by a change of its last word, which has the
//! ticket of the insertion; a search that finds another last word afterwards has read parts of two
//! entries, and finds nothing. A slot whose thread ends while it is claimed stays claimed. Each word of
//! a layout has the ticket, too: what a delayed insertion of a former epoch writes there is not read
//! as another function's, with which the hook of a launch would read invalid memory.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use crate::{mapping, system::Errno};

/// Number of slots.
const FUNCTIONS_MAX: usize = 16384;
/// Maximum number of parameters of all functions of an epoch together.
const PARAMETERS_MAX: usize = 128 << 10;
/// Maximum number of slots that a search probes.
const PROBES_MAX: usize = 16;
/// Words of a slot: handle of the function, epoch, and [`Reported`].
const SLOT_WORDS: usize = 3;
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

    /// Word of a layout, with the ticket of its insertion.
    const fn to_word(self, ticket: u32) -> u64 {
        (ticket as u64) << 32 | (self.offset_bytes as u64) << 16 | self.bytes as u64
    }

    /// Parameter in a word of a layout; `None` if another insertion has written the word.
    #[expect(clippy::cast_possible_truncation, reason = "parts of a word")]
    const fn from_word(word: u64, ticket: u32) -> Option<Self> {
        if (word >> 32) as u32 == ticket {
            Some(Self { offset_bytes: (word >> 16) as u16, bytes: word as u16 })
        } else {
            None
        }
    }
}

/// Layout in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Index of the first parameter.
    first: usize,
    count: usize,
    ticket: u32,
}

impl Layout {
    /// Number of parameters.
    pub(crate) const fn len(self) -> usize {
        self.count
    }
}

/// Result of a search for the parameters of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    /// In the table.
    Found(Layout),
    /// In the table: the driver does not report the parameters.
    NotReported,
    /// Not in the table.
    NotFound,
}

/// Last word of a slot: ticket of the insertion (32 bits), index of the first parameter (17), and
/// number of parameters or [`NOT_REPORTED`](Self::NOT_REPORTED) or [`CLAIMED`](Self::CLAIMED) (15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reported(u64);

const COUNT_BITS: u32 = 15;
const _: () = assert!((PARAMETER_BYTES_MAX as u64) < Reported::CLAIMED && PARAMETERS_MAX <= 1 << (32 - COUNT_BITS));

impl Reported {
    /// Slot that was never used.
    const EMPTY: Self = Self(0);
    /// Count of a function whose parameters the driver does not report.
    const NOT_REPORTED: u64 = (1 << COUNT_BITS) - 1;
    /// Count of a slot that is being written.
    const CLAIMED: u64 = Self::NOT_REPORTED - 1;

    const fn new(ticket: u32, first: usize, count: u64) -> Self {
        Self((ticket as u64) << 32 | (first as u64) << COUNT_BITS | count)
    }

    const fn count(self) -> u64 {
        self.0 & Self::NOT_REPORTED
    }

    const fn is_claimed(self) -> bool {
        self.count() == Self::CLAIMED
    }

    #[expect(clippy::cast_possible_truncation, reason = "parts of a word")]
    fn lookup(self) -> Lookup {
        if self.count() == Self::NOT_REPORTED {
            return Lookup::NotReported;
        }
        let (ticket, first) = ((self.0 >> 32) as u32, (self.0 as u32 >> COUNT_BITS) as usize);
        Lookup::Found(Layout { first, count: self.count() as usize, ticket })
    }
}

/// Slot of the table.
#[derive(Clone, Copy, Debug)]
struct Slot {
    handle: &'static AtomicU64,
    epoch: &'static AtomicU64,
    reported: &'static AtomicU64,
}

impl Slot {
    fn reported(self) -> Reported {
        Reported(self.reported.load(Ordering::Acquire))
    }

    /// Entry with its handle and epoch; `None` without one, or while it is being written.
    fn read(self) -> Option<(u64, u64, Reported)> {
        let reported = self.reported();
        if reported == Reported::EMPTY || reported.is_claimed() {
            return None;
        }
        let (handle, epoch) = (self.handle.load(Ordering::Relaxed), self.epoch.load(Ordering::Relaxed));
        // After a change of the other words, the last one has changed, too.
        fence(Ordering::Acquire);
        (self.reported.load(Ordering::Relaxed) == reported.0).then_some((handle, epoch, reported))
    }

    /// Claims a slot without an entry of this epoch.
    fn claim(self, now: u64, ticket: u32) -> bool {
        let reported = self.reported();
        let is_free = reported == Reported::EMPTY || self.read().is_some_and(|(_, epoch, _)| epoch < now);
        is_free && self.replace(reported, ticket)
    }

    /// Claims a slot in which an entry of this epoch may be.
    fn evict(self, ticket: u32) -> bool {
        let reported = self.reported();
        !reported.is_claimed() && self.replace(reported, ticket)
    }

    fn replace(self, former: Reported, ticket: u32) -> bool {
        let claimed = Reported::new(ticket, 0, Reported::CLAIMED);
        let result = self.reported.compare_exchange(former.0, claimed.0, Ordering::Relaxed, Ordering::Relaxed);
        // Before the other words: see `read`.
        fence(Ordering::Release);
        result.is_ok()
    }

    /// Writes the entry of a claimed slot.
    fn fill(self, handle: u64, epoch: u64, reported: Reported) {
        self.handle.store(handle, Ordering::Relaxed);
        self.epoch.store(epoch, Ordering::Relaxed);
        self.reported.store(reported.0, Ordering::Release);
    }
}

/// Table of functions' parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameters {
    /// Current epoch. Entries of other epochs are invalid, as their handles may have been reused.
    epoch: &'static AtomicU64,
    /// Number of insertions.
    tickets: &'static AtomicU64,
    /// Lower half of an epoch, and the number of words in use for layouts of that epoch.
    used: &'static AtomicU64,
    slots: &'static [AtomicU64],
    layouts: &'static [AtomicU64],
}

impl Parameters {
    /// Creates an empty table.
    ///
    /// # Errors
    /// Fails if its memory cannot be mapped.
    pub(crate) fn new() -> Result<Self, Errno> {
        let words = mapping::private(8 + FUNCTIONS_MAX * SLOT_WORDS + PARAMETERS_MAX)?;
        let (head, rest) = words.split_at_checked(8).ok_or(Errno(0))?;
        let (slots, layouts) = rest.split_at_checked(FUNCTIONS_MAX * SLOT_WORDS).ok_or(Errno(0))?;
        let [epoch, tickets, used, ..] = head else { return Err(Errno(0)) };
        Ok(Self { epoch, tickets, used, slots, layouts })
    }

    /// Begins a new epoch: invalidates all entries. To be called before a module is unloaded or a
    /// context ends, because the driver may then reuse the handles of functions.
    pub(crate) fn invalidate(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Slots that may hold a function.
    fn probe(&self, function: u64) -> impl Iterator<Item = Slot> + use<> {
        self.probe_from(function, 0)
    }

    /// Slots that may hold a function, from one of them on.
    fn probe_from(&self, function: u64, first: usize) -> impl Iterator<Item = Slot> + use<> {
        let slots = self.slots;
        let hash = (function.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
        (0..PROBES_MAX).map(move |probe| (probe + first) % PROBES_MAX).filter_map(move |probe| {
            let at = (hash + probe) % FUNCTIONS_MAX * SLOT_WORDS;
            match slots.get(at..at + SLOT_WORDS) {
                Some([handle, epoch, reported]) => Some(Slot { handle, epoch, reported }),
                _ => None,
            }
        })
    }

    /// Looks up the parameters of a function.
    pub(crate) fn find(&self, function: u64) -> Lookup {
        let now = self.epoch.load(Ordering::Acquire);
        let mut entries = self.probe(function).filter_map(Slot::read);
        let found = entries.find(|(handle, epoch, _)| (*handle, *epoch) == (function, now));
        found.map_or(Lookup::NotFound, |(_, _, reported)| reported.lookup())
    }

    /// Parameter of a layout; `None` if its memory has been reused.
    pub(crate) fn get(&self, layout: Layout, at: usize) -> Option<Parameter> {
        // A word after the layout has another ticket.
        let word = self.layouts.get(layout.first.checked_add(at)?)?;
        Parameter::from_word(word.load(Ordering::Relaxed), layout.ticket)
    }

    /// Adds a function. `parameters`: `None` if the driver does not report them.
    pub(crate) fn insert(&self, function: u64, parameters: Option<impl Iterator<Item = Parameter> + Clone>) {
        // Before the driver's report: a report of an earlier epoch is never found.
        let now = self.epoch.load(Ordering::Acquire);
        let Some((ticket, slot)) = self.claim(function, now) else { return };
        let reported = match parameters {
            Some(parameters) => self.add_layout(now, ticket, parameters),
            None => Reported::new(ticket, 0, Reported::NOT_REPORTED),
        };
        slot.fill(function, now, reported);
    }

    /// Claims a slot for a function: a free one, or else one of those that it may be in.
    #[expect(clippy::cast_possible_truncation, reason = "a ticket is the lower half")]
    fn claim(&self, function: u64, now: u64) -> Option<(u32, Slot)> {
        let ticket = self.tickets.fetch_add(1, Ordering::Relaxed).wrapping_add(1) as u32;
        let free = self.probe(function).find(|slot| slot.claim(now, ticket));
        let any = || self.probe_from(function, ticket as usize % PROBES_MAX).find(|slot| slot.evict(ticket));
        free.or_else(any).map(|slot| (ticket, slot))
    }

    /// Stores a layout. Without room for it, the slot remains empty, and a new epoch begins.
    fn add_layout(&self, now: u64, ticket: u32, parameters: impl Iterator<Item = Parameter> + Clone) -> Reported {
        let count = parameters.clone().count();
        let Some(first) = self.reserve(now, count) else {
            let _ = self.epoch.compare_exchange(now, now.wrapping_add(1), Ordering::AcqRel, Ordering::Relaxed);
            return Reported::EMPTY;
        };
        let words = self.layouts.get(first..first + count).unwrap_or_default();
        for (word, parameter) in words.iter().zip(parameters) {
            word.store(parameter.to_word(ticket), Ordering::Relaxed);
        }
        Reported::new(ticket, first, count as u64)
    }

    /// Reserves words for a layout of an epoch; returns the index of the first. The first
    /// reservation of an epoch ends those of former ones. `None` without room, or in a former epoch.
    #[expect(clippy::cast_possible_truncation, reason = "parts of a word")]
    fn reserve(&self, now: u64, count: usize) -> Option<usize> {
        if count == 0 {
            return Some(0);
        }
        let now = now as u32;
        let reserve = |used: u64| {
            let epoch = (used >> 32) as u32;
            let first = if epoch == now { used as u32 as usize } else { 0 };
            let end = first.checked_add(count).filter(|end| *end <= PARAMETERS_MAX)?;
            let is_former = now.wrapping_sub(epoch).cast_signed() < 0;
            (!is_former).then_some(u64::from(now) << 32 | end as u64)
        };
        let used = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve).ok()?;
        Some(if (used >> 32) as u32 == now { used as u32 as usize } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters(count: u16) -> impl Iterator<Item = Parameter> + Clone {
        (0..count).map(|at| Parameter { offset_bytes: 8 * at, bytes: 8 })
    }

    /// Parameters of a function as found in the table; `None` if they are not found.
    fn found(table: &Parameters, function: u64) -> Option<Vec<Parameter>> {
        let Lookup::Found(layout) = table.find(function) else { return None };
        (0..layout.len()).map(|at| table.get(layout, at)).collect()
    }

    #[test]
    fn inserted_parameters_are_found() {
        let table = Parameters::new().unwrap();
        assert_eq!(table.find(0x5000), Lookup::NotFound);
        table.insert(0x5000, Some(parameters(3)));
        table.insert(0x6000, Some(parameters(0)));
        table.insert(0x7000, None::<core::iter::Empty<Parameter>>);
        assert_eq!(found(&table, 0x5000), Some(parameters(3).collect()));
        assert_eq!(found(&table, 0x6000), Some(Vec::new()));
        assert_eq!(table.find(0x7000), Lookup::NotReported);
    }

    #[test]
    fn functions_of_an_unloaded_module_are_not_found() {
        let table = Parameters::new().unwrap();
        table.insert(0x5000, Some(parameters(3)));
        table.invalidate();
        assert_eq!(table.find(0x5000), Lookup::NotFound);
        table.insert(0x5000, Some(parameters(1)));
        assert_eq!(found(&table, 0x5000), Some(parameters(1).collect()));
    }

    #[test]
    fn functions_are_found_after_any_number_of_unloads() {
        let table = Parameters::new().unwrap();
        let functions = || (1..=200_u64).map(|at| 0x7f00_0000_0000 | at << 6);
        for unload in 0..2000 {
            functions().for_each(|function| table.insert(function, Some(parameters(9))));
            let lost = functions().filter(|function| table.find(*function) == Lookup::NotFound).count();
            assert_eq!(lost, 0, "after {unload} unloads");
            table.invalidate();
        }
    }

    #[test]
    fn function_added_last_is_found_beyond_the_capacity() {
        let table = Parameters::new().unwrap();
        for at in 1..=FUNCTIONS_MAX as u64 * 2 {
            table.insert(at << 4, Some(parameters(9)));
            // Without room, the next insertion succeeds.
            if table.find(at << 4) == Lookup::NotFound {
                table.insert(at << 4, Some(parameters(9)));
            }
            assert_eq!(found(&table, at << 4), Some(parameters(9).collect()), "{at}");
        }
        assert_eq!(table.find(5), Lookup::NotFound);
    }

    #[test]
    fn largest_layout_has_room_in_each_epoch() {
        let table = Parameters::new().unwrap();
        let largest =
            || (0..u16::try_from(PARAMETER_BYTES_MAX).unwrap()).map(|at| Parameter { offset_bytes: at, bytes: 1 });
        for function in 1..40 {
            table.insert(function << 4, Some(largest()));
            table.invalidate();
            table.insert(function << 4, Some(largest()));
            assert_eq!(found(&table, function << 4).map(|all| all.len()), Some(PARAMETER_BYTES_MAX));
        }
    }

    #[test]
    fn layout_of_a_delayed_insertion_is_not_read_as_another() {
        let table = Parameters::new().unwrap();
        let delayed = table.reserve(0, 3).unwrap();
        table.invalidate();
        table.insert(0x5000, Some(parameters(3)));
        let Lookup::Found(layout) = table.find(0x5000) else { panic!("{:?}", table.find(0x5000)) };
        // The insertion of the former epoch, whose ticket is another, writes its second word now.
        table.layouts[delayed + 1].store(Parameter { offset_bytes: 800, bytes: 8 }.to_word(77), Ordering::Relaxed);
        assert_eq!([0, 1, 2].map(|at| table.get(layout, at).is_some()), [true, false, true]);
        assert_eq!(table.reserve(0, 3), None, "the former epoch reserves nothing more");
    }

    #[test]
    fn slot_that_is_being_written_is_neither_found_nor_claimed() {
        let table = Parameters::new().unwrap();
        let (_, first) = table.claim(0x5000, 0).unwrap();
        assert_eq!(table.find(0x5000), Lookup::NotFound);
        // As a signal handler does, which interrupts the insertion.
        table.insert(0x5000, Some(parameters(2)));
        assert_eq!(found(&table, 0x5000), Some(parameters(2).collect()));
        for _ in 0..PROBES_MAX * 2 {
            let (ticket, slot) = table.claim(0x5000, 0).unwrap();
            assert_ne!(slot.handle.as_ptr(), first.handle.as_ptr());
            slot.fill(0x5000, 0, Reported::new(ticket, 0, Reported::NOT_REPORTED));
        }
    }

    /// Threads that launch, while others unload modules: each layout is that of its function.
    #[test]
    fn threads_find_only_layouts_of_their_functions() {
        let table = Parameters::new().unwrap();
        // As many parameters as the number of the function, each with it as the offset.
        let layout = |function: u64| {
            let number = u16::try_from(function >> 4).unwrap();
            (0..number).map(move |at| Parameter { offset_bytes: number, bytes: at })
        };
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                scope.spawn(move || {
                    for round in 0..20_000_u64 {
                        let function = (1 + (round * 7 + thread) % 50) << 4;
                        if table.find(function) == Lookup::NotFound {
                            table.insert(function, Some(layout(function)));
                        }
                        if let Lookup::Found(known) = table.find(function) {
                            assert_eq!(known.len(), layout(function).count());
                            for (at, parameter) in layout(function).enumerate() {
                                let found = table.get(known, at);
                                assert!(found.is_none_or(|found| found == parameter), "{function:#x}: {found:?}");
                            }
                        }
                        if round % 16 == thread {
                            table.invalidate();
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn parameter_beyond_the_arguments_is_rejected() {
        assert_eq!(Parameter::new(PARAMETER_BYTES_MAX - 8, 8).map(|parameter| parameter.bytes), Some(8));
        assert_eq!(Parameter::new(PARAMETER_BYTES_MAX, 8), None);
        assert_eq!(Parameter::new(usize::MAX, 8), None);
    }
}
