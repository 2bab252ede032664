//! Adding to what is counted.

use abi::{
    CountKey, Kind, LostReason, Tally,
    count::{Space, bucket},
};

use aya_ebpf::maps::HashMap;

use crate::{
    maps::{BPF_NOEXIST, COUNTS, DISTRIBUTIONS, SPACES, lose},
    memory::{self, Unreadable},
};

/// Why something is not counted. Where the VA space is known, it has been told.
pub struct Lost(pub LostReason);

impl From<Unreadable> for Lost {
    #[inline(always)]
    fn from(Unreadable: Unreadable) -> Self {
        Self(LostReason::Unreadable)
    }
}

/// Counts what could not be counted.
#[inline(always)]
pub fn note(result: Result<(), Lost>) {
    if let Err(Lost(reason)) = result {
        lose(reason);
    }
}

/// A VA space that the probes know.
#[derive(Clone, Copy)]
pub struct Known {
    /// What the map has of it.
    pub value: *mut Space,
    /// Tells it from others at the same address.
    pub generation: u64,
}

impl Known {
    /// The one at an address.
    #[inline(always)]
    pub fn at(va_space: u64) -> Result<Self, Lost> {
        let value = SPACES.get_ptr_mut(va_space).ok_or(Lost(LostReason::UnknownVaSpace))?;
        // SAFETY: a value of the map. The driver frees a VA space only after its last event, so the entry is not another one's meanwhile.
        let generation = unsafe { (*value).generation };
        Ok(Self { value, generation })
    }

    /// The process that made it.
    #[inline(always)]
    pub fn tgid(&self) -> u32 {
        // SAFETY: a field of a value of the map.
        unsafe { (*self.value).tgid }
    }

    /// Adds to a count of this VA space.
    #[inline(always)]
    pub fn add(&self, gpu: u32, kind: Kind, detail: u32, tally: Tally) -> Result<(), Lost> {
        let key = CountKey { generation: self.generation, gpu, kind: kind as u16, detail: detail as u16 };
        add(&key, tally).map_err(|Full| self.lose())
    }

    #[inline(always)]
    fn lose(&self) -> Lost {
        // SAFETY: a field of a value of the map.
        let lost_events = unsafe { &raw mut (*self.value).lost_events };
        // SAFETY: 8-byte aligned, and only ever changed atomically.
        unsafe { memory::add_atomically(lost_events, 1) };
        Lost(LostReason::CountsFull)
    }
}

/// No room for another key.
pub struct Full;

/// Adds to a count.
#[inline(always)]
pub fn add(key: &CountKey, added: Tally) -> Result<(), Full> {
    let tally = COUNTS.get_ptr_mut(key).or_else(|| {
        // The key's first event, unless another CPU's has just come between; where there is no room, the key stays missing.
        let _ = COUNTS.insert(key, Tally { events: 0, amount: 0 }, BPF_NOEXIST);
        COUNTS.get_ptr_mut(key)
    });
    let tally = tally.ok_or(Full)?;
    // SAFETY: this CPU's own value, and probes do not interrupt each other on one CPU.
    let tally = unsafe { &mut *tally };
    tally.events += added.events;
    tally.amount += added.amount;
    Ok(())
}

/// Adds a value to a distribution. Not inlined: once a batch, or a copy.
#[inline(never)]
pub fn observe(generation: u64, gpu: u32, kind: u32, value: u64) -> u32 {
    let key = CountKey { generation, gpu, kind: kind as u16, detail: bucket(value) };
    if add_to(&DISTRIBUTIONS, &key, Tally { events: 1, amount: value }).is_err() {
        lose(LostReason::CountsFull);
    }
    0
}

/// Adds to a tally that all CPUs share.
#[inline(always)]
pub fn add_to<K>(map: &HashMap<K, Tally>, key: &K, added: Tally) -> Result<(), Full> {
    let tally = map.get_ptr_mut(key).or_else(|| {
        let _ = map.insert(key, Tally { events: 0, amount: 0 }, BPF_NOEXIST);
        map.get_ptr_mut(key)
    });
    let tally = tally.ok_or(Full)?;
    // SAFETY: a field of a value of the map.
    let events = unsafe { &raw mut (*tally).events };
    // SAFETY: as above.
    let amount = unsafe { &raw mut (*tally).amount };
    // SAFETY: 8-byte aligned, and only ever changed atomically.
    unsafe { memory::add_atomically(events, added.events) };
    // SAFETY: as above.
    unsafe { memory::add_atomically(amount, added.amount) };
    Ok(())
}
