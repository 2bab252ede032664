//! VA space of another process.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
};

use super::{
    UvmError,
    call::{Call, is_va_space},
    descriptors::{Descriptor, Search, distinct, folder},
};
use crate::{
    Roots,
    pidfd::{PidFd, PidFdError, compare_files},
    processes,
};

/// Maximum of VA spaces of one process held open at a time; CUDA creates one.
pub const SPACES_MAX: usize = 8;

/// Descriptor of a VA space of a process. It keeps the VA space alive, as the module's
/// documentation explains: not to be stored.
#[derive(Debug)]
pub struct VaSpace<'a> {
    process: &'a PidFd,
    /// Place of the descriptor in the process.
    place: Descriptor,
    file: OwnedFd,
}

impl<'a> VaSpace<'a> {
    /// VA spaces of a process; most have one. If it has its own, those shared with the process it
    /// was forked from are omitted. At most one descriptor too many is ever held open, however many
    /// the process has.
    ///
    /// # Errors
    /// If there is none, or too many to inspect or to hold. If the process has exited, may not be
    /// inspected, or has several whose owner is unknown. An unavailable descriptor does not hide
    /// others.
    pub fn of(process: &'a PidFd, roots: &Roots) -> Result<Vec<Self>, UvmError> {
        must_live(process)?;
        let pid = process.pid();
        let thread = processes::live_thread(roots, pid).map_err(|source| UvmError::Unreadable { pid, source })?;
        let thread = thread.unwrap_or(pid);
        let of_thread = if thread == pid { None } else { Some(process.of_thread(thread)?) };
        let mut search = Search::new(roots, pid);
        // From here on the process is known to have this thread, as its handle is open.
        let candidates = search.candidates(&folder(roots, pid, thread))?;
        let files = distinct(candidates.into_iter().map(|fd| (thread, fd)).collect());
        let holder = of_thread.as_ref().unwrap_or(process);
        let spaces = take_each(pid, files.iter().map(|(_, fd)| *fd), |fd| va_space_behind(holder, fd, &search));
        let spaces = spaces.map_err(|error| match error {
            // The thread exited, but not the process.
            UvmError::Process(PidFdError::NoProcess(_)) if must_live(process).is_ok() => {
                UvmError::Unreadable { pid, source: io::Error::from_raw_os_error(libc::ESRCH) }
            }
            other => other,
        })?;
        let own = match spaces.as_slice() {
            [] => return Err(UvmError::NoVaSpace(pid)),
            [_] => Vec::new(),
            several => search.not_inherited(&several.iter().map(|(fd, _)| (thread, *fd)).collect::<Vec<_>>())?,
        };
        let is_own = |fd: RawFd| own.is_empty() || own.contains(&(thread, fd));
        Ok(spaces
            .into_iter()
            .filter(|(fd, _)| is_own(*fd))
            .map(|(fd, file)| Self { process, place: (thread, fd), file })
            .collect())
    }

    /// Place of its descriptor in the process.
    #[must_use]
    pub const fn place(&self) -> Descriptor {
        self.place
    }

    /// Whether another process has this VA space open, as this descriptor.
    ///
    /// # Errors
    /// If the kernel cannot compare, or the descriptor is closed.
    pub fn is(&self, other: Descriptor) -> io::Result<bool> {
        compare_files((std::process::id(), self.file.as_raw_fd()), other).map(std::cmp::Ordering::is_eq)
    }

    /// Makes a call of the driver if the process is alive, and waits for its completion.
    ///
    /// # Errors
    /// If the process has exited, or the driver fails the call.
    pub fn ask(&self, call: Call) -> Result<(), UvmError> {
        must_live(self.process)?;
        call.make(self.file.as_fd())
    }
}

impl From<VaSpace<'_>> for OwnedFd {
    fn from(space: VaSpace<'_>) -> Self {
        space.file
    }
}

impl AsFd for VaSpace<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Fails for a process that has exited: its remains must not be touched.
pub(crate) fn must_live(process: &PidFd) -> Result<(), PidFdError> {
    if process.has_exited()? { Err(PidFdError::NoProcess(process.pid())) } else { Ok(()) }
}

/// Contents of these descriptors of a process, with their numbers, unless there are too many;
/// irrelevant ones and those closed meanwhile are omitted. If nothing is found, returns the first
/// error.
fn take_each<S>(
    pid: u32,
    numbers: impl Iterator<Item = RawFd>,
    take: impl Fn(RawFd) -> Result<Option<S>, UvmError>,
) -> Result<Vec<(RawFd, S)>, UvmError> {
    let mut found = Vec::new();
    let mut refused = None;
    for fd in numbers {
        match take(fd) {
            Ok(Some(_)) if found.len() >= SPACES_MAX => {
                return Err(UvmError::TooMany { pid, what: "VA spaces", max: SPACES_MAX });
            }
            Ok(Some(space)) => found.push((fd, space)),
            Ok(None) | Err(UvmError::Process(PidFdError::NoFile { .. })) => {}
            Err(ended @ UvmError::Process(PidFdError::NoProcess(_))) => return Err(ended),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    match refused {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

/// VA space of a descriptor, if it represents one. The number may refer to any file by now; only
/// the device receives a request.
fn va_space_behind(holder: &PidFd, fd: RawFd, search: &Search<'_>) -> Result<Option<OwnedFd>, UvmError> {
    let file = holder.take(fd)?;
    let is_space = search.is_open_device(file.as_fd()) && is_va_space(file.as_fd())?;
    Ok(is_space.then_some(file))
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, fs::File, process::Command, rc::Rc};

    use super::*;
    use crate::fake::{Machine, Process};

    /// Files that count how many of them are open.
    struct Counted(Rc<(Cell<usize>, Cell<usize>)>);

    impl Counted {
        fn open(counts: &Rc<(Cell<usize>, Cell<usize>)>) -> Self {
            let (now, most) = &**counts;
            now.set(now.get() + 1);
            most.set(most.get().max(now.get()));
            Self(Rc::clone(counts))
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.0.set(self.0.0.get() - 1);
        }
    }

    #[test]
    fn open_descriptors_are_bounded() {
        let counts = Rc::default();
        let spaces = take_each(7, 0..2000, |fd| {
            let file = Counted::open(&counts);
            Ok((fd % 500 == 0).then_some(file))
        });
        assert_eq!((spaces.unwrap().len(), counts.1.get()), (4, 5));
        let counts = Rc::default();
        let message = take_each(7, 0..2000, |_| Ok(Some(Counted::open(&counts)))).map(drop).unwrap_err().to_string();
        assert_eq!(message, "process 7 has too many VA spaces: more than 8");
        assert_eq!((counts.0.get(), counts.1.get()), (0, 9));
    }

    #[test]
    fn unavailable_descriptor_does_not_hide_others() {
        let refused = || UvmError::Process(PidFdError::NotPermitted(7));
        let take = |fd| match fd {
            1 => Err(refused()),
            2 => Err(UvmError::Process(PidFdError::NoFile { pid: 7, fd })),
            _ => Ok((fd == 3).then_some(())),
        };
        assert_eq!(take_each(7, 0..5, take).unwrap(), [(3, ())]);
        assert!(matches!(take_each(7, 0..3, take), Err(UvmError::Process(PidFdError::NotPermitted(7)))));
    }

    #[test]
    fn va_spaces_are_found_through_another_thread() {
        let process = Process::leaderless(std::path::Path::new("/dev/null"));
        let held = PidFd::open(process.pid()).unwrap();
        match VaSpace::of(&held, &Roots::default()).map(|_| ()).unwrap_err() {
            // It has no file of the driver, which the search found; or this kernel does not permit
            // the search.
            UvmError::NoVaSpace(_) | UvmError::Process(PidFdError::NoFirstThread(_)) => {}
            other => panic!("{other}"),
        }
    }

    #[test]
    fn descriptors_are_taken_from_a_live_thread() {
        let process = Process::leaderless(std::path::Path::new("/dev/null"));
        let held = PidFd::open(process.pid()).unwrap();
        assert!(held.take(3).is_err(), "the first thread has none");
        let thread = processes::live_thread(&Roots::default(), process.pid()).unwrap().unwrap();
        match held.of_thread(thread) {
            Ok(thread) => assert!(thread.take(3).is_ok()),
            Err(error) => assert!(matches!(error, PidFdError::NoFirstThread(_)), "{error}"),
        }
    }

    /// Probe of a descriptor of this file, with this text as /proc/devices.
    fn behind(device: &str, file: &str) -> Result<Option<()>, UvmError> {
        let machine = Machine::new().with("proc/devices", device);
        let mut process = Command::new("sleep").arg("60").stdin(File::open(file).unwrap()).spawn().unwrap();
        let held = PidFd::open(process.id()).unwrap();
        let found = va_space_behind(&held, 0, &Search::new(&machine.roots, process.id()));
        process.kill().unwrap();
        process.wait().unwrap();
        found.map(|space| space.map(drop))
    }

    #[test]
    fn only_the_device_is_queried_for_a_va_space() {
        let (uvm, no_driver) = ("Character devices:\n  5 nvidia-uvm\n", "Character devices:\n  1 mem\n");
        for (device, file) in [(uvm, "/dev/null"), (uvm, "/proc/self/stat"), (no_driver, "/dev/null")] {
            let found = behind(device, file);
            assert!(
                matches!(found, Ok(None) | Err(UvmError::Process(PidFdError::NotPermitted(_)))),
                "{file} with {device}: {found:?}"
            );
        }
    }

    #[test]
    fn file_with_the_devices_name_is_not_queried() {
        let machine = Machine::new().with("dev/nvidia-uvm", "");
        let device = machine.roots.proc.with_file_name("dev/nvidia-uvm");
        let process = Process::with_copies(&device, 0);
        machine.link(&format!("proc/{}", process.pid()), &format!("/proc/{}", process.pid()));
        let held = PidFd::open(process.pid()).unwrap();
        match VaSpace::of(&held, &machine.roots).map(|_| ()).unwrap_err() {
            UvmError::NoVaSpace(_) | UvmError::Process(PidFdError::NotPermitted(_)) => {}
            other => panic!("{other}"),
        }
    }

    #[test]
    fn exited_process_is_not_touched() {
        let mut child = Command::new("true").spawn().unwrap();
        let process = PidFd::open(child.id()).unwrap();
        child.wait().unwrap();
        let error = VaSpace::of(&process, &Roots::default()).map(|_| ()).unwrap_err();
        assert!(matches!(error, UvmError::Process(PidFdError::NoProcess(pid)) if pid == process.pid()), "{error}");
    }

    #[test]
    fn process_without_the_driver_has_no_va_space() {
        let process = PidFd::open(std::process::id()).unwrap();
        assert!(
            matches!(VaSpace::of(&process, &Roots::default()), Err(UvmError::NoVaSpace(pid)) if pid == process.pid())
        );
    }
}
