//! Another process, held by a descriptor: its exit can be waited for, and its open files can be
//! duplicated. Once it has exited, another process may have its id, which the descriptor never refers to:
//! what was read by the id is of this process if it has not exited even then.

use std::{
    cmp::Ordering,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    time::{Duration, Instant},
};

use thiserror::Error;

/// Reason why another process, or a file of it, is unavailable.
#[derive(Debug, Error)]
pub enum PidFdError {
    /// The process does not exist, or has exited.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// Missing system call.
    #[error("this kernel has no {0}: it needs Linux 5.6 or later, and no sandbox that forbids it")]
    NoCall(&'static str),
    /// The first thread has exited, through which the kernel gives access to the process's files.
    #[error(
        "the first thread of process {0} has exited, and this kernel gives out no files of the others: it needs Linux 6.9 or later"
    )]
    NoFirstThread(u32),
    /// Missing permission to duplicate its files.
    #[error(
        "the open files of process {0} may not be taken: it needs CAP_SYS_PTRACE, and kernel.yama.ptrace_scope below 3"
    )]
    NotPermitted(u32),
    /// The descriptor does not exist.
    #[error("process {pid} has no open file {fd}")]
    NoFile {
        /// Process.
        pid: u32,
        /// Descriptor, by its number there.
        fd: RawFd,
    },
    /// Other error.
    #[error("{call} failed: {source}")]
    Call {
        /// System call.
        call: &'static str,
        /// Error of the kernel.
        source: io::Error,
    },
}

/// Handle of a process.
#[derive(Debug)]
pub struct PidFd {
    pid: u32,
    fd: OwnedFd,
}

impl PidFd {
    /// Opens the process that has this id now. The caller then checks, by the start time, that it
    /// is still the intended process.
    ///
    /// # Errors
    /// If there is no such process or no such system call.
    #[expect(unsafe_code, reason = "a system call without a safe wrapper")]
    pub fn open(pid: u32) -> Result<Self, PidFdError> {
        let number = libc::pid_t::try_from(pid).ok().filter(|number| *number > 0).ok_or(PidFdError::NoProcess(pid))?;
        // SAFETY: takes two numbers, touches no memory.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, number, 0) };
        let fd = descriptor(fd).map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH | libc::EINVAL) => PidFdError::NoProcess(pid),
            Some(libc::ENOSYS) => PidFdError::NoCall("pidfd_open"),
            _ => PidFdError::Call { call: "pidfd_open", source: error },
        })?;
        Ok(Self { pid, fd })
    }

    /// Another handle of the process.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { pid: self.pid, fd: self.fd.try_clone()? })
    }

    /// Kills the process.
    pub(crate) fn kill(&self) {
        // It has exited, or cannot be killed; its exit will be seen.
        let _ = rustix::process::pidfd_send_signal(&self.fd, rustix::process::Signal::KILL);
    }

    /// Opens one of its other threads, to duplicate files: those of the first thread are gone when
    /// it exits, unlike the others'. The caller then checks that the process still has the thread.
    ///
    /// # Errors
    /// If there is no such thread, or the kernel supports first threads only.
    #[expect(unsafe_code, reason = "a system call without a safe wrapper")]
    pub(crate) fn of_thread(&self, thread: u32) -> Result<Self, PidFdError> {
        let gone = PidFdError::NoProcess(self.pid);
        let Ok(number) = libc::pid_t::try_from(thread) else { return Err(gone) };
        // SAFETY: takes two numbers, touches no memory.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, number, libc::PIDFD_THREAD) };
        let fd = descriptor(fd).map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) => gone,
            Some(libc::EINVAL) => PidFdError::NoFirstThread(self.pid),
            _ => PidFdError::Call { call: "pidfd_open", source: error },
        })?;
        Ok(Self { pid: self.pid, fd })
    }

    /// Process id.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the process has exited.
    ///
    /// # Errors
    /// If the kernel cannot report it.
    pub fn has_exited(&self) -> Result<bool, PidFdError> {
        self.wait_for_exit(Duration::ZERO)
    }

    /// Waits for the process's exit, at most this long. Returns whether it has exited. Event loops
    /// wait for [`PidFd::as_fd`] to become readable instead.
    ///
    /// # Errors
    /// If the kernel cannot report it.
    #[expect(unsafe_code, reason = "a system call without a safe wrapper")]
    pub fn wait_for_exit(&self, at_most: Duration) -> Result<bool, PidFdError> {
        let deadline = Instant::now() + at_most;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // Rounded up, so that the last wait is not a busy one.
            let milliseconds = i32::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
            let mut poll = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: reads and writes only the given structure.
            let ready = unsafe { libc::poll(&raw mut poll, 1, milliseconds) };
            match ready {
                0 if left.is_zero() => return Ok(false),
                0 => {}
                1.. => return Ok(true),
                _ => {
                    let source = io::Error::last_os_error();
                    if source.kind() != io::ErrorKind::Interrupted {
                        return Err(PidFdError::Call { call: "poll", source });
                    }
                }
            }
        }
    }

    /// Duplicates a descriptor of the process; both share the open file. It keeps the file open,
    /// even after the process's exit.
    ///
    /// # Errors
    /// If the process has exited or may not be inspected, or has no such file.
    #[expect(unsafe_code, reason = "a system call without a safe wrapper")]
    pub fn take(&self, fd: RawFd) -> Result<OwnedFd, PidFdError> {
        // SAFETY: takes three numbers, touches no memory.
        let taken = unsafe { libc::syscall(libc::SYS_pidfd_getfd, self.fd.as_raw_fd(), fd, 0) };
        descriptor(taken).map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) => PidFdError::NoProcess(self.pid),
            Some(libc::EPERM) => PidFdError::NotPermitted(self.pid),
            Some(libc::EBADF) => PidFdError::NoFile { pid: self.pid, fd },
            Some(libc::ENOSYS) => PidFdError::NoCall("pidfd_getfd"),
            _ => PidFdError::Call { call: "pidfd_getfd", source: error },
        })
    }
}

impl AsFd for PidFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Order of the open files of two descriptors, each a process or thread and the number there. Equal
/// if both are the same file; the order has no other meaning.
///
/// # Errors
/// If the kernel cannot compare: there is no such call, a sandbox forbids it, or a descriptor is
/// closed meanwhile.
#[expect(unsafe_code, reason = "a system call without a safe wrapper")]
pub(crate) fn compare_files((pid, fd): (u32, RawFd), (other_pid, other_fd): (u32, RawFd)) -> io::Result<Ordering> {
    // From linux/kcmp.h.
    const KCMP_FILE: libc::c_int = 0;
    // SAFETY: takes five numbers, touches no memory.
    match unsafe { libc::syscall(libc::SYS_kcmp, pid, other_pid, KCMP_FILE, fd, other_fd) } {
        ..0 => Err(io::Error::last_os_error()),
        0 => Ok(Ordering::Equal),
        1 => Ok(Ordering::Less),
        2 => Ok(Ordering::Greater),
        // From linux/kcmp.h: unequal and unordered.
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Descriptor that a system call returned.
#[expect(unsafe_code, reason = "only the kernel knows that this is a descriptor")]
fn descriptor(returned: libc::c_long) -> io::Result<OwnedFd> {
    match RawFd::try_from(returned) {
        // SAFETY: the kernel just created the descriptor for this process, so there is no other
        // owner.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::{Read, Seek, Write},
        process::{Child, Command, Stdio},
    };

    use super::*;

    fn cat() -> Child {
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn process_exit_is_detected() {
        let mut child = cat();
        let process = PidFd::open(child.id()).unwrap();
        assert_eq!(process.pid(), child.id());
        assert!(!process.has_exited().unwrap());
        drop(child.stdin.take());
        assert!(process.wait_for_exit(Duration::from_secs(10)).unwrap());
        // Exited, but its status is not reaped yet.
        assert!(process.has_exited().unwrap());
        child.wait().unwrap();
        assert!(process.has_exited().unwrap());
    }

    #[test]
    fn wait_for_a_live_process_times_out() {
        let process = PidFd::open(std::process::id()).unwrap();
        let begun = Instant::now();
        assert!(!process.wait_for_exit(Duration::from_millis(30)).unwrap());
        assert!(begun.elapsed() >= Duration::from_millis(30));
    }

    #[test]
    fn taken_descriptor_shares_the_open_file() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let mut child = Command::new("sleep").arg("60").stdin(file.try_clone().unwrap()).spawn().unwrap();
        let taken = PidFd::open(child.id()).unwrap().take(0);
        child.kill().unwrap();
        child.wait().unwrap();
        let mut taken = File::from(match taken {
            Ok(taken) => taken,
            Err(PidFdError::NotPermitted(_)) => return, // no permission to inspect even own children
            Err(error) => panic!("{error}"),
        });
        // The position is shared, and the file outlives the process.
        file.seek(io::SeekFrom::Start(7)).unwrap();
        let mut rest = String::new();
        taken.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "789");
    }

    #[test]
    fn missing_process_and_descriptor_have_own_errors() {
        let mut child = cat();
        let process = PidFd::open(child.id()).unwrap();
        assert!(matches!(process.take(999), Err(PidFdError::NoFile { fd: 999, .. } | PidFdError::NotPermitted(_))));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(matches!(process.take(0), Err(PidFdError::NoProcess(_))));
        assert!(matches!(PidFd::open(child.id()), Err(PidFdError::NoProcess(_))));
        for nobody in [0, u32::MAX] {
            assert!(matches!(PidFd::open(nobody), Err(PidFdError::NoProcess(_))));
        }
    }
}
