//! What processes ask of the driver about managed memory: prefetches and advice.
//!
//! Attaches to: kprobes `uvm_api_migrate` and the like, `(PARAMS *, struct file *)`, with the range's base and length first in the parameters; and
//! the return of `uvm_api_migrate`.
//! Produces: calls in `COUNTS`, those of the process whose memory it is and those of others apart: a tool acts through a descriptor of the
//! process's, so the VA space is the file's and not the caller's.

use abi::{ApiCall, DropReason, Kind, Probe, Tally, quota::CALLS_CAPACITY};
use aya_ebpf::{
    helpers::bpf_get_current_pid_tgid,
    macros::{kprobe, kretprobe, map},
    maps::HashMap,
    programs::{ProbeContext, RetProbeContext},
};

use crate::{
    counting::{self, Account, Dropped, Known},
    maps::{count_drop, hit, layout},
    memory::{self, FILE_TYPE_BITS, Unreadable},
    quotas::{self, Caller},
};

/// Longer than this no process's memory is. The driver refuses such a call; a few of them added up would have the bytes go back to 0.
const LENGTH_MAX: u64 = 1 << 47;

/// One program for each call.
macro_rules! calls {
    ($($program:ident: $call:ident,)+) => { $(
        #[kprobe]
        fn $program(ctx: ProbeContext) -> u32 {
            hit(Probe::$call);
            counting::note(call(&ctx, ApiCall::$call));
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
    let parameters = ctx.arg::<u64>(0).ok_or(Unreadable)?;
    let file = ctx.arg::<u64>(1).ok_or(Unreadable)?;
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

/// A call to move memory that has not returned.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Migration {
    /// The VA space whose memory it is.
    pub account: Account,
    /// 1 if it is the caller's own.
    pub is_own: u64,
    caller: Caller,
}

/// By thread.
#[map]
static MIGRATIONS: HashMap<u64, Migration> = HashMap::with_max_entries(CALLS_CAPACITY, 0);

#[inline(always)]
fn begin(account: Account, is_own: bool) {
    // One whose return was missed.
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
    hit(Probe::MigrateReturn);
    end();
    0
}

/// Nothing is there of an unknown VA space.
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

/// The call to move memory that the current thread is in.
#[inline(always)]
pub fn under_way() -> Option<Migration> {
    // SAFETY: a value of the map, of this thread alone.
    MIGRATIONS.get_ptr(bpf_get_current_pid_tgid()).map(|migration| unsafe { *migration })
}

/// Whether the current process is the one whose VA space it is.
#[inline(always)]
pub fn is_own(space: &Known) -> bool {
    (bpf_get_current_pid_tgid() >> 32) as u32 == space.tgid()
}
