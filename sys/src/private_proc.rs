//! A /proc of this process alone.
//!
//! All mounts of /proc in a container, or on a node without containers, show the same folders. A user who may
//! read a folder can hold its lock without end: by a listing into memory whose pages the user never provides,
//! and by a change of the folder's times, which waits for the listing. A process that then looks up a name in
//! the folder sleeps, and cannot be killed. Since Linux 5.8, a new mount of /proc has its own folders.

use std::{
    ffi::CStr,
    fs, io,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::{
    mount::{MountFlags, MountPropagationFlags, mount, mount_change},
    thread::{UnshareFlags, unshare_unsafe},
};

use crate::Roots;

const PROC: &CStr = c"/proc";
/// Flag of `sched.h`. The kernel refuses to unshare it if there is another thread.
const CLONE_THREAD: u32 = 0x1_0000;

/// Whether [`mount_own`] has succeeded.
static IS_MOUNTED: AtomicBool = AtomicBool::new(false);

/// Mounts a /proc that only this process and its children see. Later mounts of others are still seen.
///
/// # Errors
/// If this process has other threads, or may not mount (without `CAP_SYS_ADMIN`), or if the kernel has only one
/// /proc.
#[expect(unsafe_code, reason = "a namespace of the calling thread")]
pub fn mount_own() -> io::Result<()> {
    let of_all = fs::metadata("/proc")?.dev();
    // SAFETY: unshares the mount namespace alone, no descriptors or memory. The kernel refuses it if there is
    // another thread.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::from_bits_retain(CLONE_THREAD)) }?;
    mount_change(c"/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(c"proc", PROC, c"proc", flags, None::<&CStr>)?;
    if fs::metadata("/proc")?.dev() == of_all {
        return Err(io::Error::other("the kernel has one /proc for all"));
    }
    IS_MOUNTED.store(true, Ordering::Relaxed);
    Ok(())
}

/// Whether /proc is that of the node's first process, and so of its users; `None` if that is unknown, such as
/// without permission to inspect that process.
#[must_use]
pub fn is_shared(roots: &Roots) -> Option<bool> {
    if IS_MOUNTED.load(Ordering::Relaxed) && roots.proc == Path::new("/proc") {
        return Some(false);
    }
    let of_node = fs::metadata(roots.proc.join("1/root/proc")).ok()?;
    Some(fs::metadata(&roots.proc).ok()?.dev() == of_node.dev())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Machine;

    #[test]
    fn proc_is_shared_if_it_is_that_of_the_first_process() {
        let machine = Machine::new();
        assert_eq!(is_shared(&machine.roots), None);
        fs::create_dir_all(machine.roots.proc.join("1/root/proc")).unwrap();
        assert_eq!(is_shared(&machine.roots), Some(true));
        fs::remove_dir(machine.roots.proc.join("1/root/proc")).unwrap();
        // Of another file system.
        machine.link("proc/1/root/proc", "/proc");
        assert_eq!(is_shared(&machine.roots), Some(false));
    }

    #[test]
    fn process_with_threads_mounts_nothing() {
        // Other threads are that of this test and that of its harness.
        let error = std::thread::spawn(mount_own).join().unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
