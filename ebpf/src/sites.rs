//! Sites: instructions of a process that raise CPU faults on its managed memory.
//!
//! Produces: `SITES`, and in `COUNTS` the faults and copies without a site.
//! Cost: two hash look-ups for each CPU fault, and for each copy to the host in the thread that
//! faulted; no locks. The first fault of a thread inserts into an LRU hash, and the first one at a
//! site into a hash, under the kernel's locks of their buckets and lists; a new site also has the
//! cost of [`quotas`](crate::quotas). Without room for it, each fault and copy pays that, and one
//! more look-up for the count.
//!
//! The program counter is a field of the driver's event, which has it in all versions. The driver
//! takes it from the registers that the thread had in user space (`KSTK_EIP(current)`). In a system
//! call, those are at the instruction after it. Threads of the kernel, such as those of `io_uring`,
//! have 0.
//!
//! The driver services a CPU fault in the thread that faulted, after the event of the fault. So a
//! copy for a fault is for the last CPU fault of its thread. GPU faults are serviced in a thread of the
//! kernel, which has none.

use abi::{CountKey, DropReason, Kind, Resource, Tally, count::SiteKey};
use aya_ebpf::{helpers::bpf_get_current_pid_tgid, macros::map, maps::LruHashMap};

use crate::{
    counting::{self, Account, Full, add_to},
    maps::{SITES, count_drop},
};

/// Instead of a program counter, for a fault that another process raised. No instruction is there.
const NO_SITE: u64 = u64::MAX;

/// Program counter of the last CPU fault by thread, or [`NO_SITE`]. An entry is needed from a fault to its copies.
/// Once the map is full, entries not used lately are replaced. Copies in a thread of the process then
/// have no site; those in a thread of another one look like copies for GPU faults, and are not counted
/// here. User space sets the capacity: each CPU takes 128 entries in advance.
#[map]
static LAST_FAULTS: LruHashMap<u64, u64> = LruHashMap::with_max_entries(8192, 0);

/// Counts a CPU fault for its site. Not inlined: once per fault.
#[inline(never)]
pub fn faulted(account: &Account, pc: u64) -> u32 {
    let thread = bpf_get_current_pid_tgid();
    // Another process, as a debugger, reads the memory: its code is not the process's.
    let site = if is_of(thread, account) { pc } else { NO_SITE };
    match LAST_FAULTS.get_ptr_mut(thread) {
        // SAFETY: a value of the map, which only this thread writes. If the entry becomes another
        // thread's in between, one copy of that thread counts for this site.
        Some(last) => unsafe { *last = site },
        None => _ = LAST_FAULTS.insert(thread, site, 0),
    }
    count(account, site, Tally { events: 1, amount: 0 })
}

/// Counts a copy from a GPU for the site of the fault that it is for, if a CPU fault it is. Not
/// inlined: once per copy.
#[inline(never)]
pub fn copied(account: &Account, bytes: u64) -> u32 {
    let thread = bpf_get_current_pid_tgid();
    let site = match LAST_FAULTS.get_ptr(thread) {
        // SAFETY: a value of the map, which only this thread writes.
        Some(last) => unsafe { *last },
        None if is_of(thread, account) => NO_SITE,
        // For a GPU fault.
        None => return 0,
    };
    count(account, site, Tally { events: 0, amount: bytes })
}

/// Whether a thread is of the process that is charged.
#[inline(always)]
const fn is_of(thread: u64, account: &Account) -> bool {
    (thread >> 32) as u32 == account.owner.tgid
}

#[inline(always)]
fn count(account: &Account, site: u64, added: Tally) -> u32 {
    let Account { generation, .. } = *account;
    let key = SiteKey { generation, pc: site };
    if site != NO_SITE && add_to(&SITES, account, Resource::Sites, &key, added).is_ok() {
        return 0;
    }
    let key = CountKey { generation, gpu: 0, kind: Kind::SitelessCpuFault as u16, detail: 0 };
    if let Err(Full) = counting::add(account, &key, added) {
        count_drop(DropReason::CountsFull);
    }
    0
}
