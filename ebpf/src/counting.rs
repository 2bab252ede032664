//! Addition to counts.

use abi::{
    CountKey, DropReason, Kind, Owner, Resource, Tally,
    count::{Space, bucket},
};
use aya_ebpf::maps::HashMap;

use crate::{
    maps::{BPF_NOEXIST, COUNTS, DISTRIBUTIONS, SPACES, count_drop},
    memory::{self, Unreadable},
    quotas,
};

/// Reason why an event was dropped. If its VA space is known, that one's dropped events are counted
/// already.
pub struct Dropped(pub DropReason);

impl From<Unreadable> for Dropped {
    #[inline(always)]
    fn from(Unreadable: Unreadable) -> Self {
        Self(DropReason::Unreadable)
    }
}

/// Counts a dropped event.
#[inline(always)]
pub fn count_error(result: Result<(), Dropped>) {
    if let Err(Dropped(reason)) = result {
        count_drop(reason);
    }
}

/// Generation of a count, and the owner charged for its keys.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Account {
    pub generation: u64,
    pub owner: Owner,
}

impl Account {
    /// Account of unknown VA spaces. It has few keys: some for each GPU.
    pub const UNKNOWN: Self = Self { generation: 0, owner: Owner { tgid: 0, uid: 0 } };
}

/// VA space known to the probes.
#[derive(Clone, Copy)]
pub struct Known {
    /// Its value in the map.
    pub value: *mut Space,
    /// Generation, which distinguishes VA spaces at the same address.
    pub generation: u64,
}

impl Known {
    /// VA space at an address.
    #[inline(always)]
    pub fn at(va_space: u64) -> Result<Self, Dropped> {
        let value = SPACES.get_ptr_mut(va_space).ok_or(Dropped(DropReason::UnknownVaSpace))?;
        // SAFETY: a value of the map. The driver frees a VA space only after its last event, so the
        // entry cannot belong to another one meanwhile.
        let generation = unsafe { (*value).generation };
        Ok(Self { value, generation })
    }

    /// Process that created it.
    #[inline(always)]
    pub fn tgid(&self) -> u32 {
        // SAFETY: a field of a value of the map.
        unsafe { (*self.value).owner.tgid }
    }

    /// Account of its counts.
    #[inline(always)]
    pub fn account(&self) -> Account {
        // SAFETY: a field of a value of the map.
        Account { generation: self.generation, owner: unsafe { (*self.value).owner } }
    }

    /// Adds to a count of this VA space.
    #[inline(always)]
    pub fn add(&self, gpu: u32, kind: Kind, detail: u32, tally: Tally) -> Result<(), Dropped> {
        let key = CountKey { generation: self.generation, gpu, kind: kind as u16, detail: detail as u16 };
        add(&self.account(), &key, tally).map_err(|Full| self.count_drop())
    }

    #[inline(always)]
    fn count_drop(&self) -> Dropped {
        // SAFETY: a field of a value of the map.
        let dropped_events = unsafe { &raw mut (*self.value).dropped_events };
        // SAFETY: 8-byte aligned, and only ever changed atomically.
        unsafe { memory::add_atomically(dropped_events, 1) };
        Dropped(DropReason::CountsFull)
    }
}

/// Tally of a new key. In read-only memory: one on the stack would be zeroed byte by byte, in a
/// loop that the verifier follows each time.
static NO_TALLY: Tally = Tally::NONE;

/// No room for another key, or its owner's quota is reached.
pub struct Full;

/// Adds to a count.
#[inline(always)]
pub fn add(account: &Account, key: &CountKey, added: Tally) -> Result<(), Full> {
    let mut tally = COUNTS.get_ptr_mut(key);
    if tally.is_none() {
        if may_insert(account, Resource::Counts) {
            #[expect(clippy::needless_borrows_for_generic_args, reason = "by value it would be on the stack")]
            let _ = COUNTS.insert(key, &NO_TALLY, BPF_NOEXIST);
        }
        // First event of the key, unless another CPU has just inserted it. If there is no room, the
        // key stays missing.
        tally = COUNTS.get_ptr_mut(key);
    }
    let tally = tally.ok_or(Full)?;
    // SAFETY: this CPU's value, and probes do not interrupt each other on one CPU.
    let tally = unsafe { &mut *tally };
    tally.events += added.events;
    tally.amount += added.amount;
    Ok(())
}

/// Whether another key may be inserted, which charges it. If the insertion then fails, as another
/// CPU was first or there is no room, user space detects the excess charge.
#[inline(always)]
fn may_insert(account: &Account, resource: Resource) -> bool {
    account.generation == 0 || quotas::admit(account.owner, resource)
}

/// Adds a value to a distribution. Not inlined: called once per batch or copy.
#[inline(never)]
pub fn observe(account: &Account, gpu: u32, kind: u32, value: u64) -> u32 {
    let key = CountKey { generation: account.generation, gpu, kind: kind as u16, detail: bucket(value) };
    if add_to(&DISTRIBUTIONS, account, Resource::Distributions, &key, Tally { events: 1, amount: value }).is_err() {
        count_drop(DropReason::CountsFull);
    }
    0
}

/// Adds to a tally shared by all CPUs.
#[inline(always)]
pub fn add_to<K>(
    map: &HashMap<K, Tally>,
    account: &Account,
    resource: Resource,
    key: &K,
    added: Tally,
) -> Result<(), Full> {
    let mut tally = map.get_ptr_mut(key);
    if tally.is_none() {
        if may_insert(account, resource) {
            #[expect(clippy::needless_borrows_for_generic_args, reason = "by value it would be on the stack")]
            let _ = map.insert(key, &NO_TALLY, BPF_NOEXIST);
        }
        tally = map.get_ptr_mut(key);
    }
    let tally = tally.ok_or(Full)?;
    // SAFETY: a value of the map, whose entries are preallocated; only the field's address is taken.
    let events = unsafe { &raw mut (*tally).events };
    // SAFETY: a value of the map, whose entries are preallocated; only the field's address is taken.
    let amount = unsafe { &raw mut (*tally).amount };
    for (sum, added) in [(events, added.events), (amount, added.amount)] {
        // SAFETY: 8-byte aligned, and only ever changed atomically.
        unsafe { memory::add_atomically(sum, added) };
    }
    Ok(())
}
