//! VA spaces created before the probes were attached.
//!
//! Iterator over every open file of every process, run by the loader after it attached the probes.
//! A file of the driver that represents a VA space points to it. The first process found with the
//! file counts as its owner. The loader, its children and their children are skipped: uvmd, its
//! spawners and its actors hold a target's file for a moment to act on its memory.
//! Produces: `SPACES`, and a record in `LIFECYCLES` for each VA space that was unknown to the
//! probes.
//! Cost: one or two comparisons for each open file on the machine, once.
//!
//! The iterator holds a reference to the file while it reads it, so the VA space cannot be
//! destroyed meanwhile. The probes see a later destruction.

use core::ffi::c_void;

use abi::Owner;
use aya_ebpf::helpers::bpf_get_current_pid_tgid;

use crate::{
    lifecycle::{self, Creator},
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
    // SAFETY: the kernel passes this structure, each of whose fields may be read until the return.
    let task = unsafe { (*ctx).task };
    // SAFETY: the kernel passes this structure, each of whose fields may be read until the return.
    let file = unsafe { (*ctx).file };
    if task.is_null() || file.is_null() {
        return 0;
    }
    // An unreadable file does not belong to the driver.
    if let Ok(Some(va_space)) = va_space_of(file as u64)
        && SPACES.get_ptr(va_space).is_none()
    {
        adopt(va_space, task as u64);
    }
    0
}

/// VA space that an open file represents.
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
    // A process without a name is better than a VA space without a process.
    let creator = creator_of(task).unwrap_or(UNKNOWN_CREATOR);
    if !is_of_loader(task) {
        lifecycle::register(va_space, &creator);
    }
}

/// Whether a thread belongs to the loader, its child or its grandchild. Name and user are ignored:
/// a process can choose them in order to hide.
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

/// Parent of a thread's process, or the process that adopted it when the parent exited.
#[inline(always)]
fn parent_of(task: u64) -> Result<u64, Unreadable> {
    memory::kernel(task + u64::from(layout!(task_real_parent)))
}

const UNKNOWN_CREATOR: Creator = Creator {
    owner: Owner { tgid: 0, uid: 0 },
    tid: 0,
    sequence: Sequence::Adopted,
    start_boottime_ns: 0,
    comm: [0; 16],
};

/// Process of a thread, with the data of its first thread.
#[inline(always)]
fn creator_of(task: u64) -> Result<Creator, Unreadable> {
    let leader = memory::kernel::<u64>(task + u64::from(layout!(task_group_leader)))?;
    let credentials = memory::kernel::<u64>(leader + u64::from(layout!(task_credentials)))?;
    let tgid = memory::kernel(leader + u64::from(layout!(task_tgid)))?;
    Ok(Creator {
        owner: Owner { tgid, uid: memory::kernel(credentials + u64::from(layout!(credentials_uid)))? },
        tid: tgid,
        sequence: Sequence::Adopted,
        start_boottime_ns: memory::kernel(leader + u64::from(layout!(task_start_boottime)))?,
        comm: memory::kernel(leader + u64::from(layout!(task_comm)))?,
    })
}
