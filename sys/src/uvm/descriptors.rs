//! Descriptors of nvidia-uvm of a process. They are found without an open, and their number is
//! bounded, as a process may have any number.
//!
//! * The device of a file is read without a request to its file system (`AT_STATX_DONT_SYNC`): that
//!   may be a program of the process's user, which never replies.
//! * Descriptors of one open file, from `dup` or `fork`, are recognised by `kcmp`, which also
//!   orders open files. If the kernel has no `kcmp`, each counts separately.

use std::{
    cmp::Ordering,
    fs, io,
    os::fd::{BorrowedFd, RawFd},
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags, statx};

use super::UvmError;
use crate::{Roots, driver, pidfd::compare_files, processes};

/// Maximum of open files inspected, for a process and its ancestors together.
const LISTED_MAX: usize = 65_536;
/// Limit on the descriptors of the driver of one process.
const OF_DRIVER_MAX: usize = 4_096;

/// Descriptor of another process: id of one of its threads, and the number there.
pub type Descriptor = (u32, RawFd);

/// Search in open files, up to a limit.
pub(super) struct Search<'a> {
    roots: &'a Roots,
    /// Process whose files are searched.
    pid: u32,
    device: Option<u32>,
    left: usize,
}

impl<'a> Search<'a> {
    /// Search in the files of a process.
    pub(super) fn new(roots: &'a Roots, pid: u32) -> Self {
        Self { roots, pid, device: driver::uvm_device(roots), left: LISTED_MAX }
    }

    /// The same, with the device of the driver.
    pub(super) const fn of_device(roots: &'a Roots, pid: u32, device: u32) -> Self {
        Self { roots, pid, device: Some(device), left: LISTED_MAX }
    }

    /// Descriptors of /dev/nvidia-uvm of a thread with this folder in /proc, in their order: by
    /// device number if the kernel exposes it, else by name.
    pub(super) fn candidates(&mut self, folder: &Path) -> Result<Vec<RawFd>, UvmError> {
        let unreadable = |source| UvmError::Unreadable { pid: self.pid, source };
        let mut found = Vec::new();
        for entry in fs::read_dir(folder.join("fd")).map_err(unreadable)? {
            let Ok(entry) = entry else { break };
            self.left = self.left.checked_sub(1).ok_or_else(|| self.too_many("open files", LISTED_MAX))?;
            if !self.is_device(&entry.path()) {
                continue;
            }
            found.extend(entry.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()));
            if found.len() > OF_DRIVER_MAX {
                return Err(self.too_many("open files of the driver", OF_DRIVER_MAX));
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Files among these that no ancestor has open: after a fork, the child shares its parent's
    /// open files, whose VA spaces have the parent's memory.
    pub(super) fn not_inherited(&mut self, files: &[Descriptor]) -> Result<Vec<Descriptor>, UvmError> {
        let mut above = Vec::new();
        for pid in processes::ancestors(self.roots, self.pid) {
            let thread = processes::live_thread(self.roots, pid).ok().flatten().unwrap_or(pid);
            match self.candidates(&folder(self.roots, pid, thread)) {
                Ok(theirs) => above.extend(theirs.into_iter().map(|fd| (thread, fd))),
                Err(error @ UvmError::TooMany { .. }) => return Err(error),
                // It belongs to another user, or has exited.
                Err(_) => {}
            }
        }
        not_among(files, &above, compare_files).map_err(|source| UvmError::UnknownOwner { pid: self.pid, source })
    }

    /// Whether this open file is the device. A listed number may refer to another file by the time
    /// it is duplicated. As long as the device's number is unknown, no file is known to be the
    /// device.
    pub(super) fn is_open_device(&self, file: BorrowedFd<'_>) -> bool {
        let flags = AtFlags::STATX_DONT_SYNC | AtFlags::EMPTY_PATH;
        self.device.is_some_and(|device| statx(file, c"", flags, StatxFlags::TYPE).is_ok_and(|file| is(device, &file)))
    }

    fn is_device(&self, path: &Path) -> bool {
        match self.device {
            Some(device) => {
                statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE).is_ok_and(|file| is(device, &file))
            }
            None => fs::read_link(path).is_ok_and(|target| target.ends_with("dev/nvidia-uvm")),
        }
    }

    fn too_many(&self, what: &'static str, max: usize) -> UvmError {
        UvmError::TooMany { pid: self.pid, what, max }
    }
}

/// Whether a file is the character device of this number.
fn is(device: u32, file: &Statx) -> bool {
    FileType::from_raw_mode(file.stx_mode.into()) == FileType::CharacterDevice
        && u64::from(device) == u64::from(file.stx_rdev_major) << 20 | u64::from(file.stx_rdev_minor)
}

/// Folder of a thread in /proc.
pub(super) fn folder(roots: &Roots, pid: u32, thread: u32) -> PathBuf {
    if thread == pid { roots.proc.join(pid.to_string()) } else { processes::task_folder(roots, pid, thread) }
}

/// One descriptor of each open file; all of them if the kernel cannot compare. Descriptors closed
/// meanwhile are omitted.
pub(super) fn distinct(files: Vec<Descriptor>) -> Vec<Descriptor> {
    distinct_by(&files, compare_files).unwrap_or(files)
}

fn distinct_by(
    files: &[Descriptor],
    compare: impl Fn(Descriptor, Descriptor) -> io::Result<Ordering>,
) -> io::Result<Vec<Descriptor>> {
    // In the order of the open files.
    let mut found: Vec<Descriptor> = Vec::new();
    'files: for file in files {
        let (mut low, mut high) = (0, found.len());
        while let Some(middle) = found.get(low..high).and_then(|rest| rest.get(rest.len() / 2)) {
            let at = low + (high - low) / 2;
            match compare(*file, *middle) {
                Ok(Ordering::Equal) => continue 'files,
                Ok(Ordering::Less) => high = at,
                Ok(Ordering::Greater) => low = at + 1,
                // One of the two was closed meanwhile.
                Err(error) if is_closed(&error) => {
                    if compare(*file, *file).is_err() {
                        continue 'files;
                    }
                    found.remove(at);
                    (low, high) = (0, found.len());
                }
                Err(error) => return Err(error),
            }
        }
        found.insert(low, *file);
    }
    // A process works with its first descriptors.
    found.sort_unstable();
    Ok(found)
}

/// Files that are not among others. A file that was closed meanwhile, or whose process has exited,
/// is omitted.
fn not_among(
    files: &[Descriptor],
    theirs: &[Descriptor],
    compare: impl Fn(Descriptor, Descriptor) -> io::Result<Ordering>,
) -> io::Result<Vec<Descriptor>> {
    let mut own = Vec::new();
    for file in files {
        let mut inherited = false;
        for other in theirs {
            inherited |= match compare(*file, *other) {
                Err(error) if is_closed(&error) => false,
                known => known?.is_eq(),
            };
        }
        if !inherited {
            own.push(*file);
        }
    }
    Ok(own)
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBADF | libc::ESRCH))
}

#[cfg(test)]
mod tests {
    use std::{
        cell::{Cell, RefCell},
        fs::File,
        process::{Command, id},
    };

    use super::*;
    use crate::fake::{Machine, Process};

    /// Machine without a driver, whose device is recognised by its name alone.
    fn machine() -> (Machine, PathBuf) {
        let machine = Machine::new().with("dev/nvidia-uvm", "");
        let device = machine.roots.proc.with_file_name("dev/nvidia-uvm");
        (machine, device)
    }

    fn show(machine: &Machine, pid: u32) {
        machine.link(&format!("proc/{pid}"), &format!("/proc/{pid}"));
    }

    fn candidates(machine: &Machine, pid: u32) -> Result<Vec<RawFd>, UvmError> {
        Search::new(&machine.roots, pid).candidates(&folder(&machine.roots, pid, pid))
    }

    #[test]
    fn duplicate_descriptors_are_inspected_once() {
        let (machine, device) = machine();
        let process = Process::with_copies(&device, 2000);
        let pid = process.pid();
        show(&machine, pid);
        let all = candidates(&machine, pid).unwrap();
        assert_eq!(all.len(), 2002);
        assert_eq!(distinct(all.into_iter().map(|fd| (pid, fd)).collect()), [(pid, 3), (pid, 4)]);
    }

    #[test]
    fn inspected_descriptors_are_bounded() {
        let machine = Machine::new();
        for fd in 0..=OF_DRIVER_MAX {
            machine.link(&format!("proc/7/fd/{fd}"), "/dev/nvidia-uvm");
        }
        let message = candidates(&machine, 7).unwrap_err().to_string();
        assert_eq!(message, "process 7 has too many open files of the driver: more than 4096");
        let mut search = Search { left: 10, ..Search::new(&machine.roots, 7) };
        let message = search.candidates(&machine.roots.proc.join("7")).unwrap_err().to_string();
        assert_eq!(message, "process 7 has too many open files: more than 65536");
    }

    #[test]
    fn inherited_va_space_is_not_the_childs() {
        let (machine, device) = machine();
        let (parents, childs) = (File::open(&device).unwrap(), File::open(&device).unwrap());
        let mut child =
            Command::new("sleep").arg("60").stdin(parents.try_clone().unwrap()).stdout(childs).spawn().unwrap();
        for pid in [child.id(), id()] {
            show(&machine, pid);
        }
        let all: Vec<_> = candidates(&machine, child.id()).unwrap().into_iter().map(|fd| (child.id(), fd)).collect();
        let own = Search::new(&machine.roots, child.id()).not_inherited(&all).unwrap();
        drop(parents);
        child.kill().unwrap();
        child.wait().unwrap();
        let pid = child.id();
        assert_eq!((all, own), (vec![(pid, 0), (pid, 1)], vec![(pid, 1)]));
    }

    #[test]
    fn descriptors_are_listed_through_a_live_thread() {
        let (machine, device) = machine();
        let process = Process::leaderless(&device);
        show(&machine, process.pid());
        assert!(candidates(&machine, process.pid()).unwrap().is_empty());
        let thread = processes::live_thread(&machine.roots, process.pid()).unwrap().unwrap();
        let of_thread = folder(&machine.roots, process.pid(), thread);
        assert_eq!(Search::new(&machine.roots, process.pid()).candidates(&of_thread).unwrap(), [3, 4]);
    }

    #[test]
    fn uncomparable_files_of_several_processes_are_not_chosen() {
        let fails = |errno: i32| {
            not_among(&[(7, 3), (7, 4)], &[(1, 3), (1, 9)], |(_, fd), (_, other)| {
                if fd == other { Ok(Ordering::Equal) } else { Err(io::Error::from_raw_os_error(errno)) }
            })
        };
        for errno in [libc::ENOSYS, libc::EPERM] {
            assert_eq!(fails(errno).unwrap_err().raw_os_error(), Some(errno));
        }
        for gone in [libc::EBADF, libc::ESRCH] {
            assert_eq!(fails(gone).unwrap(), [(7, 4)]);
        }
    }

    #[test]
    fn duplicate_search_needs_few_comparisons() {
        let comparisons = Cell::new(0);
        let files: Vec<Descriptor> = (0..1000).map(|fd| (7, fd)).collect();
        // Ten open files, in an order unrelated to the numbers.
        let file = |(_, fd): Descriptor| (fd % 10) * 7 % 10;
        let found = distinct_by(&files, |one, other| {
            comparisons.set(comparisons.get() + 1);
            Ok(file(one).cmp(&file(other)))
        });
        assert_eq!(found.unwrap(), (0..10).map(|fd| (7, fd)).collect::<Vec<_>>());
        assert!(comparisons.get() <= 4000, "{}", comparisons.get());
    }

    #[test]
    fn descriptor_closed_meanwhile_does_not_hide_others() {
        let closed = RefCell::new(Vec::new());
        let files: Vec<Descriptor> = (0..20).map(|fd| (7, fd)).collect();
        let found = distinct_by(&files, |(_, one), (_, other)| {
            // Closed meanwhile: one found already, in the middle, with which the next is compared,
            // and another before its comparison.
            if one == 5 {
                *closed.borrow_mut() = vec![2, 10];
            }
            if closed.borrow().contains(&one) || closed.borrow().contains(&other) {
                return Err(io::Error::from_raw_os_error(libc::EBADF));
            }
            Ok(one.cmp(&other))
        });
        let left: Vec<_> = (0..20).filter(|fd| ![2, 10].contains(fd)).map(|fd| (7, fd)).collect();
        assert_eq!(found.unwrap(), left);
    }

    #[test]
    fn uncomparable_files_count_separately() {
        let unknown = |_, _| Err(io::Error::from_raw_os_error(libc::ENOSYS));
        assert!(distinct_by(&[(7, 3), (7, 4)], unknown).is_err());
        // A missing process leaves nothing, which is not an error.
        assert_eq!(distinct(vec![(u32::MAX >> 1, 3)]), [(u32::MAX >> 1, 3)]);
    }
}
