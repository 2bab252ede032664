//! Own process: name, parent, user, children and signals; and descriptors of others.

use std::{
    ffi::CString,
    fs::File,
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use anyhow::Context;

/// Sets the short name that `ps` and uvmd show; the kernel stores 15 bytes of it.
pub(crate) fn set_name(name: &str) -> anyhow::Result<()> {
    let name = CString::new(name).context("a name with a NUL byte")?;
    // SAFETY: the kernel copies at most 16 bytes of this NUL-terminated string.
    let result = unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()).context("cannot set the process's name") }
}

/// Lets the kernel kill this process when its parent dies.
pub(crate) fn die_with_parent() -> anyhow::Result<()> {
    // SAFETY: takes a number, touches no memory.
    let result = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()).context("cannot follow the parent's death") }
}

/// Kills this process, as kill -9 does.
pub(crate) fn kill_self() -> anyhow::Result<()> {
    // SAFETY: takes numbers, touches no memory.
    let result = unsafe { libc::raise(libc::SIGKILL) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()).context("cannot kill this process") }
}

/// Raises the limit of open descriptors. Only root may raise the hard limit.
pub(crate) fn allow_descriptors(count: u64) -> anyhow::Result<()> {
    let limit = libc::rlimit { rlim_cur: count, rlim_max: count };
    // SAFETY: reads the structure it is given.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()).context("cannot raise the limit of descriptors") }
}

/// Becomes this user irrevocably, without groups; does nothing if the process has the user id
/// already.
pub(crate) fn become_user(uid: u32) -> anyhow::Result<()> {
    // SAFETY: takes nothing, touches no memory, and cannot fail.
    if unsafe { libc::getuid() } == uid {
        return Ok(());
    }
    // SAFETY: an empty list of groups, without an address.
    let groups = unsafe { libc::setgroups(0, std::ptr::null()) };
    // SAFETY: takes numbers, touches no memory.
    let group = unsafe { libc::setresgid(uid, uid, uid) };
    // SAFETY: takes numbers, touches no memory.
    let user = unsafe { libc::setresuid(uid, uid, uid) };
    if (groups, group, user) == (0, 0, 0) {
        Ok(())
    } else {
        Err(io::Error::last_os_error()).with_context(|| format!("cannot become user {uid}"))
    }
}

/// Runs a function in a child process, and waits for its exit. This process must have no other
/// thread.
pub(crate) fn run_in_child(act: impl FnOnce()) -> anyhow::Result<()> {
    status_of_child(act).map(drop)
}

/// Wait status of a child process that runs a function.
fn status_of_child(act: impl FnOnce()) -> anyhow::Result<i32> {
    // SAFETY: this process has one thread; the child runs the function and exits.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()).context("cannot fork"),
        0 => {
            act();
            // SAFETY: exits this process without running code of the parent.
            unsafe { libc::_exit(0) }
        }
        child => {
            let mut status = 0;
            // SAFETY: writes the status it is given.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            if waited == child {
                Ok(status)
            } else {
                Err(io::Error::last_os_error()).context("cannot wait for a child")
            }
        }
    }
}

/// Starts a child process that runs a function, and that the kernel kills when this process dies. This
/// process must have no other thread.
pub(crate) fn start_child(act: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
    // SAFETY: this process has one thread; the child runs the function and exits.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()).context("cannot fork"),
        0 => {
            if let Err(error) = die_with_parent().and_then(|()| act()) {
                eprintln!("lab-runner: {error:#}");
            }
            // SAFETY: exits this process without running code of the parent.
            unsafe { libc::_exit(1) }
        }
        _ => Ok(()),
    }
}

/// Signal of an access to memory that is not there.
pub(crate) const SIGSEGV: i32 = libc::SIGSEGV;

/// Runs a function in a child process, and returns the signal that ended it. This process must have
/// no other thread.
pub(crate) fn signal_of_child(act: impl FnOnce()) -> anyhow::Result<Option<i32>> {
    let status = status_of_child(act)?;
    Ok(libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)))
}

/// Exits this thread alone. For the first thread of a process whose other threads continue.
pub(crate) fn exit_thread() -> ! {
    loop {
        // SAFETY: exits this thread, which is never joined; its stack stays mapped as long as the
        // process lives.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
}

/// Whether any process of a process group lives.
pub(crate) fn group_lives(group: u32) -> anyhow::Result<bool> {
    let group = libc::pid_t::try_from(group).context("no process group")?;
    // SAFETY: takes numbers, touches no memory; signal 0 is not sent.
    let result = unsafe { libc::kill(-group, 0) };
    match io::Error::last_os_error() {
        _ if result == 0 => Ok(true),
        error if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
        error => Err(error).context("cannot look for a process group"),
    }
}

/// Duplicate of another process's descriptor.
pub(crate) fn duplicate(pid: u32, fd: i32) -> anyhow::Result<File> {
    let about = || format!("cannot duplicate descriptor {fd} of process {pid}");
    // SAFETY: takes numbers, touches no memory.
    let process = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let process = owned(process).with_context(about)?;
    // SAFETY: takes numbers, touches no memory.
    let copy = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) };
    Ok(File::from(owned(copy).with_context(about)?))
}

/// Descriptor that a system call returned, or its error.
fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    let fd = i32::try_from(result).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: a descriptor that was just created, without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// SIGINT and SIGTERM, blocked in this process's threads and in processes it starts from now on.
pub(crate) struct StopSignals(libc::sigset_t);

impl StopSignals {
    /// Blocks the signals. Call before any thread is started.
    pub(crate) fn block() -> anyhow::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: writes the set it is given.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        for signal in [libc::SIGINT, libc::SIGTERM] {
            // SAFETY: the set was initialized above.
            unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
        }
        // SAFETY: initialized above.
        let set = unsafe { set.assume_init() };
        // SAFETY: reads the set; the old mask is not requested.
        let result = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if result == 0 {
            Ok(Self(set))
        } else {
            Err(io::Error::from_raw_os_error(result)).context("cannot block signals")
        }
    }

    /// Waits for one of the signals.
    pub(crate) fn wait(&self) -> anyhow::Result<()> {
        let mut signal = 0;
        // SAFETY: reads the set and writes one int.
        let result = unsafe { libc::sigwait(&raw const self.0, &raw mut signal) };
        if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)).context("cannot wait for signals") }
    }
}
