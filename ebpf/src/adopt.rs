//! VA spaces that were made before the probes were attached.
//!
//! An iterator over every open file of every process, run by the loader once the probes are attached. A file of the driver's that stands for
//! a VA space points to it; whoever holds the file is taken for its owner, the first one if there are several. Never the loader itself, which
//! may hold another's for a moment to move its memory.
//! Produces: `SPACES`, and a record in `LIFECYCLES` for each VA space that the probes did not know yet.
//! Cost: one comparison or two for each open file on the machine, once.
//!
//! The file is held while it is looked at, so its VA space cannot be destroyed meanwhile; and one that is destroyed later is seen by the probes.

use core::ffi::c_void;

use abi::{Lifecycle, LifecycleKind, LostReason};
use aya_ebpf::helpers::bpf_get_current_pid_tgid;

use crate::{
    maps::{BPF_NOEXIST, NO_LOSSES, PROCESSES, SPACES, Sequence, layout, lose, next_generation, space, tell},
    memory::{self, FILE_TYPE_BITS, Unreadable},
};

/// The kernel's `struct bpf_iter__task_file`. The pointers are null once, after the last file.
#[repr(C)]
struct TaskFile {
    meta: *const c_void,
    task: *const c_void,
    fd: u32,
    file: *const c_void,
}

/// `S_IFMT` and `S_IFCHR`.
const FILE_TYPE: u16 = 0o170_000;
const CHARACTER_DEVICE: u16 = 0o020_000;

#[unsafe(no_mangle)]
#[unsafe(link_section = "iter/task_file")]
extern "C" fn uvm_adopt(ctx: *const TaskFile) -> i32 {
    // SAFETY: the kernel hands over this structure, of which each field may be read.
    let task = unsafe { (*ctx).task };
    // SAFETY: as above.
    let file = unsafe { (*ctx).file };
    if task.is_null() || file.is_null() {
        return 0;
    }
    // What cannot be read is not the driver's.
    if let Ok(Some(va_space)) = va_space_of(file as u64)
        && SPACES.get_ptr(va_space).is_none()
    {
        adopt(va_space, task as u64);
    }
    0
}

/// The VA space that an open file stands for.
#[inline(always)]
fn va_space_of(file: u64) -> Result<Option<u64>, Unreadable> {
    let inode = memory::kernel::<u64>(file + u64::from(layout!(file_inode)))?;
    let device = memory::kernel::<u32>(inode + u64::from(layout!(inode_device)))?;
    if device != layout!(uvm_device) {
        return Ok(None);
    }
    let mode = memory::kernel::<u16>(inode + u64::from(layout!(inode_mode)))?;
    if mode & FILE_TYPE != CHARACTER_DEVICE {
        return Ok(None);
    }
    let data = memory::kernel::<u64>(file + u64::from(layout!(file_private_data)))?;
    let va_space = data & !FILE_TYPE_BITS;
    Ok((va_space != 0 && data & FILE_TYPE_BITS == u64::from(layout!(va_space_file_type))).then_some(va_space))
}

#[inline(always)]
fn adopt(va_space: u64, task: u64) {
    // A process without a name is still better than a VA space without a process.
    let owner = Owner::of(task).unwrap_or_default();
    if owner.tgid == (bpf_get_current_pid_tgid() >> 32) as u32 {
        return;
    }
    let generation = next_generation(Sequence::Adopted);
    if SPACES.insert(va_space, space(generation, owner.tgid), BPF_NOEXIST).is_err() {
        // Unless a probe has just come between.
        if SPACES.get_ptr(va_space).is_none() {
            lose(LostReason::SpacesFull);
        }
        return;
    }
    // A probe may have told of a later one meanwhile.
    let _ = PROCESSES.insert(owner.tgid, generation, BPF_NOEXIST);
    tell(&Lifecycle {
        generation,
        start_boottime_ns: owner.start_boottime_ns,
        lost_events: 0,
        records: NO_LOSSES,
        kind: LifecycleKind::Adopted as u32,
        tgid: owner.tgid,
        tid: owner.tgid,
        uid: owner.uid,
        comm: owner.comm,
    });
}

#[derive(Default)]
struct Owner {
    start_boottime_ns: u64,
    tgid: u32,
    uid: u32,
    comm: [u8; 16],
}

impl Owner {
    /// The process of a thread, as its first thread shows it.
    #[inline(always)]
    fn of(task: u64) -> Result<Self, Unreadable> {
        let leader = memory::kernel::<u64>(task + u64::from(layout!(task_group_leader)))?;
        let credentials = memory::kernel::<u64>(leader + u64::from(layout!(task_credentials)))?;
        Ok(Self {
            start_boottime_ns: memory::kernel(leader + u64::from(layout!(task_start_boottime)))?,
            tgid: memory::kernel(leader + u64::from(layout!(task_tgid)))?,
            uid: memory::kernel(credentials + u64::from(layout!(credentials_uid)))?,
            comm: memory::kernel(leader + u64::from(layout!(task_comm)))?,
        })
    }
}
