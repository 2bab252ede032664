//! A /proc of this process alone.
//!
//! All mounts of /proc in a container or on a node without containers show the same folders, and whoever
//! may read a folder can hold its lock for as long as they like: by a listing into memory that they never
//! provide, and a change of its times, which waits for that. Whoever then looks up a name in it sleeps,
//! and cannot be killed. A /proc that was mounted anew has folders of its own since Linux 5.8.

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
/// Of `sched.h`: to unshare it is to have no other thread.
const CLONE_THREAD: u32 = 0x1_0000;

/// Whether [`mount_own`] has succeeded.
static IS_MOUNTED: AtomicBool = AtomicBool::new(false);

/// Mounts a /proc that only this process and its children see. Later mounts of others are still seen.
///
/// # Errors
/// If this process has other threads, or may not mount: it takes `CAP_SYS_ADMIN`; or if the kernel has one
/// /proc for all.
#[expect(unsafe_code, reason = "a namespace of the calling thread")]
pub fn mount_own() -> io::Result<()> {
    let of_all = fs::metadata("/proc")?.dev();
    // SAFETY: of the mount namespace alone: no descriptor or memory is unshared. The kernel refuses it if there
    // is another thread.
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

/// Whether /proc is that of the node's first process, and so of its users; `None` if that is unknown, as
/// without the right to look at that process.
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
        // That of the test itself, and of its harness.
        let error = std::thread::spawn(mount_own).join().unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
