//! Calls of processes to the driver about managed memory: migration and advice.
//!
//! Attaches to: kprobes `uvm_api_migrate` and its like, `(PARAMS *, struct file *)`, with the base
//! and length of the range first in the parameters; and the return of `uvm_api_migrate`.
//! Produces: calls in `COUNTS`, separately for calls of the memory's process and of other
//! processes. A tool acts through a descriptor of the process, so the VA space is the file's and
//! not the caller's.

use abi::{ApiCall, DropReason, Kind, Probe, Tally, quota::CALLS_CAPACITY};
use aya_ebpf::{
    helpers::bpf_get_current_pid_tgid,
    macros::{kprobe, kretprobe, map},
    maps::HashMap,
    programs::{ProbeContext, RetProbeContext},
};

use crate::{
    context::{Invocation, argument},
    counting::{self, Account, Dropped, Known},
    maps::{count_drop, layout},
    memory::{self, FILE_TYPE_BITS},
    quotas::{self, Caller},
};

/// Maximum length of a range in bytes: no process's memory is longer. The driver rejects a longer
/// one; a few of them added up would overflow the count of bytes.
const LENGTH_MAX: u64 = 1 << 47;

/// Defines a program for each call.
macro_rules! calls {
    ($($program:ident: $call:ident,)+) => { $(
        #[kprobe]
        fn $program(ctx: ProbeContext) -> u32 {
            let _invocation = Invocation::of(Probe::$call);
            counting::count_error(call(&ctx, ApiCall::$call));
            0
        }
    )+ };
}

calls! {
    uvm_migrate: Migrate,
    uvm_set_preferred_location: SetPreferredLocation,
    uvm_unset_preferred_location: UnsetPreferredLocation,
    uvm_set_accessed_by: SetAccessedBy,
    uvm_unset_accessed_by: UnsetAccessedBy,
    uvm_enable_read_duplication: EnableReadDuplication,
    uvm_disable_read_duplication: DisableReadDuplication,
    uvm_discard: Discard,
}

#[inline(always)]
fn call(ctx: &ProbeContext, call: ApiCall) -> Result<(), Dropped> {
    let parameters = argument::<u64>(ctx, 0)?;
    let file = argument::<u64>(ctx, 1)?;
    let data = memory::driver::<u64>(file.wrapping_add(u64::from(layout!(file_private_data))))?;
    let length = memory::driver::<u64>(parameters.wrapping_add(8))?;
    let amount = if length > LENGTH_MAX { 0 } else { length };
    let space = Known::at(data & !FILE_TYPE_BITS)?;
    let is_own = is_own(&space);
    if matches!(call, ApiCall::Migrate) {
        begin(space.account(), is_own);
    }
    let kind = if is_own { Kind::ApiCall } else { Kind::ToolCall };
    space.add(0, kind, call as u32, Tally { events: 1, amount })
}

/// Migration call in progress.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Migration {
    /// VA space of the memory.
    pub account: Account,
    /// 1 if the VA space is the caller's.
    pub is_own: u64,
    caller: Caller,
}

/// Migration calls by thread.
#[map]
static MIGRATIONS: HashMap<u64, Migration> = HashMap::with_max_entries(CALLS_CAPACITY, 0);

#[inline(always)]
fn begin(account: Account, is_own: bool) {
    // An earlier call whose return was missed.
    end();
    if let Some(caller) = quotas::enter_call() {
        let migration = Migration { account, is_own: u64::from(is_own), caller };
        if MIGRATIONS.insert(bpf_get_current_pid_tgid(), migration, 0).is_ok() {
            return;
        }
        quotas::leave_call(caller);
    }
    count_drop(DropReason::CountsFull);
}

#[kretprobe]
fn uvm_migrated(_ctx: RetProbeContext) -> u32 {
    let _invocation = Invocation::of(Probe::MigrateReturn);
    end();
    0
}

/// Removes the thread's call, if any. A call about an unknown VA space has no entry.
#[inline(always)]
fn end() {
    let thread = bpf_get_current_pid_tgid();
    if let Some(migration) = MIGRATIONS.get_ptr(thread) {
        // SAFETY: a value of the map, of this thread alone.
        let caller = unsafe { (*migration).caller };
        let _ = MIGRATIONS.remove(thread);
        quotas::leave_call(caller);
    }
}

/// Migration call in progress on the current thread.
#[inline(always)]
pub fn under_way() -> Option<Migration> {
    // SAFETY: a value of the map, of this thread alone.
    MIGRATIONS.get_ptr(bpf_get_current_pid_tgid()).map(|migration| unsafe { *migration })
}

/// Whether the current process owns the VA space.
#[inline(always)]
pub fn is_own(space: &Known) -> bool {
    (bpf_get_current_pid_tgid() >> 32) as u32 == space.tgid()
}
