//! Sites: instructions of a process that raise CPU faults on its managed memory.
//!
//! Produces: `SITES`, and in `COUNTS` the faults and copies without a site.
//! Cost: two hash look-ups for each CPU fault, and for each copy to the host in the thread that
//! faulted; no locks.
//!
//! The program counter is a field of the driver's event, which has it in all versions. The driver
//! takes it from the registers that the thread had in user space (`KSTK_EIP(current)`). In a system
//! call, those are at the instruction after it. Threads of the kernel, such as those of `io_uring`,
//! have 0.
//!
//! The driver services a CPU fault in the thread that faulted, after the event of the fault. So a
//! copy for a fault, in a thread of the process, is for the last fault of that thread. GPU faults are
//! serviced in a thread of the kernel.

use abi::{CountKey, DropReason, Kind, Resource, Tally, count::SiteKey};
use aya_ebpf::{helpers::bpf_get_current_pid_tgid, macros::map, maps::LruHashMap};

use crate::{
    counting::{self, Account, Full, add_to},
    maps::{SITES, count_drop},
};

/// Program counter of the last CPU fault by thread. An entry is needed from a fault to its copies.
/// Once the map is full, entries not used lately are replaced, and copies then have no site. User
/// space sets the capacity: each CPU takes 128 entries in advance.
#[map]
static LAST_FAULTS: LruHashMap<u64, u64> = LruHashMap::with_max_entries(8192, 0);

/// Counts a CPU fault for its site. Not inlined: once per fault.
#[inline(never)]
pub fn faulted(account: &Account, pc: u64) -> u32 {
    let thread = bpf_get_current_pid_tgid();
    // Another process, as a debugger, reads the memory: its code is not the process's.
    let is_own = is_of(thread, account);
    if is_own {
        match LAST_FAULTS.get_ptr_mut(thread) {
            // SAFETY: a value of the map, which only this thread writes. If the entry becomes another
            // thread's meanwhile, one copy of that thread counts for this site.
            Some(last) => unsafe { *last = pc },
            None => _ = LAST_FAULTS.insert(thread, pc, 0),
        }
    }
    count(account, is_own, pc, Tally { events: 1, amount: 0 })
}

/// Counts a copy from a GPU for the site of the fault that it is for, if a CPU fault it is. Not
/// inlined: once per copy.
#[inline(never)]
pub fn copied(account: &Account, bytes: u64) -> u32 {
    let thread = bpf_get_current_pid_tgid();
    if !is_of(thread, account) {
        return 0;
    }
    let last = LAST_FAULTS.get_ptr(thread);
    // SAFETY: a value of the map, which only this thread writes.
    let pc = last.map_or(0, |pc| unsafe { *pc });
    count(account, last.is_some(), pc, Tally { events: 0, amount: bytes })
}

/// Whether a thread is of the process that is charged.
#[inline(always)]
const fn is_of(thread: u64, account: &Account) -> bool {
    (thread >> 32) as u32 == account.owner.tgid
}

#[inline(always)]
fn count(account: &Account, has_site: bool, pc: u64, added: Tally) -> u32 {
    let Account { generation, .. } = *account;
    if has_site && add_to(&SITES, account, Resource::Sites, &SiteKey { generation, pc }, added).is_ok() {
        return 0;
    }
    let key = CountKey { generation, gpu: 0, kind: Kind::SitelessCpuFault as u16, detail: 0 };
    if let Err(Full) = counting::add(account, &key, added) {
        count_drop(DropReason::CountsFull);
    }
    0
}
