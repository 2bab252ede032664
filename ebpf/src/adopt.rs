//! VA spaces that were made before the probes were attached.
//!
//! An iterator over every open file of every process, run by the loader once the probes are attached. A file of the driver's that stands for
//! a VA space points to it; whoever holds the file is taken for its owner, the first one if there are several. Never the loader itself, nor
//! what it started or what that started: uvmd, its spawners and its actors hold a target's for a moment to act on its memory.
//! Produces: `SPACES`, and a record in `LIFECYCLES` for each VA space that the probes did not know yet.
//! Cost: one comparison or two for each open file on the machine, once.
//!
//! The file is held while it is looked at, so its VA space cannot be destroyed meanwhile; and one that is destroyed later is seen by the probes.

use core::ffi::c_void;

use abi::Owner;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;

use crate::{
    lifecycle::{self, Maker},
    maps::{SPACES, Sequence, layout},
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
    let maker = maker_of(task).unwrap_or(NOBODY);
    if !is_of_loader(task) {
        lifecycle::made(va_space, &maker);
    }
}

/// Whether a thread is of the loader, or of its child or grandchild. Not by name or user: a process might choose those to hide.
#[inline(always)]
fn is_of_loader(task: u64) -> bool {
    let loader = (bpf_get_current_pid_tgid() >> 32) as u32;
    is_of(task, loader)
        || parent_of(task).is_ok_and(|parent| {
            is_of(parent, loader) || parent_of(parent).is_ok_and(|grandparent| is_of(grandparent, loader))
        })
}

#[inline(always)]
fn is_of(task: u64, tgid: u32) -> bool {
    memory::kernel::<u32>(task + u64::from(layout!(task_tgid))).is_ok_and(|of_task| of_task == tgid)
}

/// The thread that started it, or whoever got it when that exited.
#[inline(always)]
fn parent_of(task: u64) -> Result<u64, Unreadable> {
    memory::kernel(task + u64::from(layout!(task_real_parent)))
}

const NOBODY: Maker = Maker {
    owner: Owner { tgid: 0, uid: 0 },
    tid: 0,
    sequence: Sequence::Adopted,
    start_boottime_ns: 0,
    comm: [0; 16],
};

/// The process of a thread, as its first thread shows it.
#[inline(always)]
fn maker_of(task: u64) -> Result<Maker, Unreadable> {
    let leader = memory::kernel::<u64>(task + u64::from(layout!(task_group_leader)))?;
    let credentials = memory::kernel::<u64>(leader + u64::from(layout!(task_credentials)))?;
    let tgid = memory::kernel(leader + u64::from(layout!(task_tgid)))?;
    Ok(Maker {
        owner: Owner { tgid, uid: memory::kernel(credentials + u64::from(layout!(credentials_uid)))? },
        tid: tgid,
        sequence: Sequence::Adopted,
        start_boottime_ns: memory::kernel(leader + u64::from(layout!(task_start_boottime)))?,
        comm: memory::kernel(leader + u64::from(layout!(task_comm)))?,
    })
}
