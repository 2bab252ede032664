//! A VA space of another process, and moving its pages.

use std::{
    fs, io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd, RawFd},
        unix::fs::MetadataExt,
    },
};

use super::{
    Status, Uuid, UvmError,
    request::{ANY_NODE, Migrate, Request, ValidateVaRange, call},
};
use crate::{
    Roots, driver,
    pidfd::{PidFd, PidFdError, is_same_file},
    processes,
};

/// The most that one call may be about: it holds the target's locks, and so stops its faults and its mmap, until everything is copied or mapped.
pub const CALL_MAX_BYTES: u64 = 32 << 20;

/// Whole pages, few enough for one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRange {
    base: u64,
    length: u64,
}

impl PageRange {
    /// None if it is empty, not on page boundaries, larger than [`CALL_MAX_BYTES`], or goes beyond the last address.
    #[must_use]
    pub fn new(base: u64, length: u64) -> Option<Self> {
        let page = procfs::page_size();
        let is_whole = base.is_multiple_of(page) && length.is_multiple_of(page);
        let is_sized = (1..=CALL_MAX_BYTES).contains(&length);
        (is_whole && is_sized && base.checked_add(length).is_some()).then_some(Self { base, length })
    }

    /// A larger range in parts of at most `part_bytes`, the first up to a multiple of that; none where no part would be a range.
    #[must_use]
    pub fn parts(base: u64, length: u64, part_bytes: u64) -> Option<Vec<Self>> {
        let end = base.checked_add(length)?;
        let mut parts = Vec::new();
        let mut at = base;
        while at < end {
            let next =
                at.checked_next_multiple_of(part_bytes).filter(|next| *next > at).or(at.checked_add(part_bytes))?;
            let next = next.min(end);
            parts.push(Self::new(at, next - at)?);
            at = next;
        }
        (!parts.is_empty()).then_some(parts)
    }

    /// The first address.
    #[must_use]
    pub const fn begin(self) -> u64 {
        self.base
    }

    /// How many bytes it has.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        self.length
    }
}

/// A VA space of a process. Keeps it alive, as the module's documentation says: do not keep it.
#[derive(Debug)]
pub struct VaSpace<'a> {
    process: &'a PidFd,
    file: OwnedFd,
}

impl<'a> VaSpace<'a> {
    /// The VA spaces of a process; most have one. Where it has its own, those that it shares with the process it was forked from are left out.
    ///
    /// # Errors
    /// If there is none, or the process has ended or may not be looked into, or has several of which nobody can say whose they are. A descriptor that cannot be had hides no other.
    pub fn of(process: &'a PidFd, roots: &Roots) -> Result<Vec<Self>, UvmError> {
        must_live(process)?;
        let pid = process.pid();
        let mut found = Vec::new();
        let mut refused = None;
        for fd in candidates(pid, roots)? {
            match Self::behind(process, fd) {
                Ok(Some(space)) => found.push((fd, space)),
                // Closed meanwhile.
                Ok(None) | Err(UvmError::Process(PidFdError::NoFile { .. })) => {}
                Err(ended @ UvmError::Process(PidFdError::NoProcess(_))) => return Err(ended),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        if found.is_empty() {
            return Err(refused.unwrap_or(UvmError::NoVaSpace(pid)));
        }
        if found.len() > 1 {
            let own = not_inherited(pid, found.iter().map(|(fd, _)| *fd), roots)
                .map_err(|source| UvmError::UnknownOwner { pid, source })?;
            found.retain(|(fd, _)| own.is_empty() || own.contains(fd));
        }
        Ok(found.into_iter().map(|(_, space)| space).collect())
    }

    /// The VA space behind a descriptor, if that is what it stands for.
    fn behind(process: &'a PidFd, fd: RawFd) -> Result<Option<Self>, UvmError> {
        let file = process.take(fd)?;
        Ok(stands_for_va_space(file.as_fd())?.then_some(Self { process, file }))
    }

    /// Move pages to a GPU or to the CPU, and wait until they are there. They must be managed memory.
    ///
    /// # Errors
    /// If the process has ended, or the driver refuses: with [`Status::INVALID_ADDRESS`] where no managed memory is.
    pub fn migrate(&self, pages: PageRange, to: Uuid) -> Result<(), UvmError> {
        let PageRange { base, length } = pages;
        self.ask(Migrate {
            base,
            length,
            destination: to,
            flags: 0,
            semaphore_address: 0,
            semaphore_payload: 0,
            cpu_numa_node: ANY_NODE,
            user_space_start: 0,
            user_space_length: 0,
            status: 0,
        })
    }

    /// Asks the driver, if the process lives.
    pub(super) fn ask<R: Request>(&self, mut request: R) -> Result<(), UvmError> {
        must_live(self.process)?;
        call(self.file.as_fd(), &mut request)
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Fails for a process that has ended: what is left of it is not to be touched.
fn must_live(process: &PidFd) -> Result<(), PidFdError> {
    if process.has_exited()? { Err(PidFdError::NoProcess(process.pid())) } else { Ok(()) }
}

/// The process's descriptors of /dev/nvidia-uvm: by device number where the kernel tells it, else by name.
fn candidates(pid: u32, roots: &Roots) -> Result<Vec<RawFd>, UvmError> {
    let device = driver::uvm_device(roots);
    let is_device = |path: &std::path::Path| match device {
        Some(device) => fs::metadata(path).is_ok_and(|file| {
            let (major, minor) = (libc::major(file.rdev()), libc::minor(file.rdev()));
            u64::from(device) == u64::from(major) << 20 | u64::from(minor)
        }),
        None => fs::read_link(path).is_ok_and(|target| target.ends_with("dev/nvidia-uvm")),
    };
    let folder = roots.proc.join(pid.to_string()).join("fd");
    let entries = fs::read_dir(&folder).map_err(|source| UvmError::Unreadable { pid, source })?;
    let mut numbers: Vec<RawFd> = entries
        .filter_map(Result::ok)
        .filter(|entry| is_device(&entry.path()))
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Those of a process's files of the driver that no process above it has open: a fork leaves the child with its parent's, and the driver with the
/// parent's memory behind them.
fn not_inherited(pid: u32, files: impl Iterator<Item = RawFd>, roots: &Roots) -> io::Result<Vec<RawFd>> {
    let above: Vec<(u32, RawFd)> = processes::ancestors(roots, pid)
        .flat_map(|above| candidates(above, roots).unwrap_or_default().into_iter().map(move |fd| (above, fd)))
        .collect();
    not_among(files, &above, |fd, theirs| is_same_file((pid, fd), theirs))
}

/// Those that are none of theirs. A file that was closed meanwhile, or whose process ended, is nobody's.
fn not_among(
    files: impl Iterator<Item = RawFd>,
    theirs: &[(u32, RawFd)],
    is_same: impl Fn(RawFd, (u32, RawFd)) -> io::Result<bool>,
) -> io::Result<Vec<RawFd>> {
    let mut own = Vec::new();
    for fd in files {
        let mut inherited = false;
        for other in theirs {
            inherited |= match is_same(fd, *other) {
                Err(error) if matches!(error.raw_os_error(), Some(libc::EBADF | libc::ESRCH)) => false,
                known => known?,
            };
        }
        if !inherited {
            own.push(fd);
        }
    }
    Ok(own)
}

/// A process has files of the driver that stand for other things. Those answer that the question is not for them; a VA space, that there is no
/// such range.
fn stands_for_va_space(file: BorrowedFd<'_>) -> Result<bool, UvmError> {
    match call(file, &mut ValidateVaRange::default()) {
        Ok(()) | Err(UvmError::Refused { status: Status::INVALID_ADDRESS, .. }) => Ok(true),
        Err(UvmError::Refused { status: Status::ILLEGAL_ACTION, .. }) => Ok(false),
        Err(other) => Err(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Machine;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_range_is_of_whole_pages_and_not_too_large() {
        assert!(PageRange::new(0x200_0000_0000, 2 * MIB).is_some());
        for (base, length) in [
            (0, 0),
            (1, 4096),
            (4096, 100),
            (0, CALL_MAX_BYTES + 4096),
            (u64::MAX - 4095, 4096),
            (u64::MAX - 4095, 8192),
        ] {
            assert_eq!(PageRange::new(base, length), None, "{base:#x} {length:#x}");
        }
    }

    #[test]
    fn parts_cover_a_range_and_end_at_block_boundaries() {
        let parts = PageRange::parts(3 * MIB, 4 * MIB, 2 * MIB).unwrap();
        let told: Vec<(u64, u64)> = parts.iter().map(|part| (part.base / MIB, part.length / MIB)).collect();
        assert_eq!(told, [(3, 1), (4, 2), (6, 1)]);
        assert_eq!(PageRange::parts(2 * MIB, 2 * MIB, 2 * MIB).unwrap().len(), 1);
        for (base, length, part) in [(0, 0, MIB), (1, MIB, MIB), (0, MIB, 0), (0, MIB, 100), (u64::MAX, 2, MIB)] {
            assert_eq!(PageRange::parts(base, length, part), None, "{base:#x} {length:#x} {part}");
        }
    }

    #[test]
    fn a_process_that_has_ended_is_not_touched() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let process = PidFd::open(child.id()).unwrap();
        child.wait().unwrap();
        let error = VaSpace::of(&process, &Roots::default()).map(|_| ()).unwrap_err();
        assert!(matches!(error, UvmError::Process(PidFdError::NoProcess(pid)) if pid == process.pid()), "{error}");
    }

    #[test]
    fn what_a_child_has_of_its_parents_is_not_its_own() {
        // Known by its name, as this machine has no driver whose number could be known.
        let machine = Machine::new().with("dev/nvidia-uvm", "");
        let device = machine.roots.proc.with_file_name("dev/nvidia-uvm");
        let parents = fs::File::open(&device).unwrap();
        let childs = fs::File::open(&device).unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .stdin(parents.try_clone().unwrap())
            .stdout(childs)
            .spawn()
            .unwrap();
        for pid in [child.id(), std::process::id()] {
            machine.link(&format!("proc/{pid}"), &format!("/proc/{pid}"));
        }
        let all = candidates(child.id(), &machine.roots).unwrap();
        let own = not_inherited(child.id(), all.iter().copied(), &machine.roots).unwrap();
        drop(parents);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((all, own), (vec![0, 1], vec![1]));
    }

    #[test]
    fn where_the_kernel_does_not_tell_whose_a_file_is_none_is_chosen() {
        let fails = |errno: i32| {
            not_among([3, 4].into_iter(), &[(1, 3), (1, 9)], |fd, (_, other)| {
                if fd == other { Ok(true) } else { Err(io::Error::from_raw_os_error(errno)) }
            })
        };
        for errno in [libc::ENOSYS, libc::EPERM] {
            assert_eq!(fails(errno).unwrap_err().raw_os_error(), Some(errno));
        }
        for gone in [libc::EBADF, libc::ESRCH] {
            assert_eq!(fails(gone).unwrap(), [4]);
        }
    }

    #[test]
    fn a_process_without_the_driver_has_no_va_space() {
        let process = PidFd::open(std::process::id()).unwrap();
        assert!(
            matches!(VaSpace::of(&process, &Roots::default()), Err(UvmError::NoVaSpace(pid)) if pid == process.pid())
        );
    }
}
