//! This process: its name, its parent, its signals.

use std::{
    ffi::CString,
    fs::File,
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
};

use anyhow::Context;

/// Set the short name that `ps` and uvmd show; the kernel keeps 15 bytes of it.
pub(crate) fn set_name(name: &str) -> anyhow::Result<()> {
    let name = CString::new(name).context("a name with a NUL byte")?;
    // SAFETY: the kernel copies at most 16 bytes of this NUL-terminated string.
    let result = unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()).context("cannot set the process's name") }
}

/// Be killed when the process that started this one dies.
pub(crate) fn die_with_parent() -> anyhow::Result<()> {
    // SAFETY: takes a number, touches no memory.
    let result = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()).context("cannot follow the parent's death") }
}

/// End this process as kill -9 does.
pub(crate) fn kill_self() -> anyhow::Result<()> {
    // SAFETY: takes numbers, touches no memory.
    let result = unsafe { libc::raise(libc::SIGKILL) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()).context("cannot kill this process") }
}

/// Let this process have so many descriptors open. Only root may raise what it may.
pub(crate) fn allow_descriptors(count: u64) -> anyhow::Result<()> {
    let limit = libc::rlimit { rlim_cur: count, rlim_max: count };
    // SAFETY: reads the structure it is given.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()).context("cannot raise the limit of descriptors") }
}

/// Be this user, without groups and without a way back; nothing changes for one who is.
pub(crate) fn become_user(uid: u32) -> anyhow::Result<()> {
    // SAFETY: takes nothing, touches no memory, and cannot fail.
    if unsafe { libc::getuid() } == uid {
        return Ok(());
    }
    // SAFETY: an empty list of groups, at no address.
    let groups = unsafe { libc::setgroups(0, std::ptr::null()) };
    // SAFETY: takes numbers, touches no memory.
    let group = unsafe { libc::setresgid(uid, uid, uid) };
    // SAFETY: as above.
    let user = unsafe { libc::setresuid(uid, uid, uid) };
    if (groups, group, user) == (0, 0, 0) {
        Ok(())
    } else {
        Err(io::Error::last_os_error()).with_context(|| format!("cannot become user {uid}"))
    }
}

/// Do something in a process of its own, and wait for its end. This one must have no other thread.
pub(crate) fn in_a_child(act: impl FnOnce()) -> anyhow::Result<()> {
    // SAFETY: the child has the only thread there is, does what it is given and ends.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()).context("cannot fork"),
        0 => {
            act();
            // SAFETY: ends this process without running anything of the parent's.
            unsafe { libc::_exit(0) }
        }
        child => {
            let mut status = 0;
            // SAFETY: writes the status it is given.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            if waited == child { Ok(()) } else { Err(io::Error::last_os_error()).context("cannot wait for a child") }
        }
    }
}

/// End this thread alone. Call it on the first one of a process, of which others go on.
pub(crate) fn exit_thread() -> ! {
    loop {
        // SAFETY: ends this thread, of which nobody waits for anything; its stack stays as long as the process.
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

/// A duplicate of another process's descriptor.
pub(crate) fn duplicate(pid: u32, fd: i32) -> anyhow::Result<File> {
    let about = || format!("cannot duplicate descriptor {fd} of process {pid}");
    // SAFETY: takes numbers, touches no memory.
    let process = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let process = owned(process).with_context(about)?;
    // SAFETY: takes numbers, touches no memory.
    let copy = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) };
    Ok(File::from(owned(copy).with_context(about)?))
}

/// The descriptor that a system call made, or its error.
fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    let fd = i32::try_from(result).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: a descriptor that was just made and that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// SIGINT and SIGTERM, taken out of the way of everything else: of this process's threads, and of processes it starts from now on.
pub(crate) struct StopSignals(libc::sigset_t);

impl StopSignals {
    /// Call before any thread is started.
    pub(crate) fn block() -> anyhow::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: writes the set it is given.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        for signal in [libc::SIGINT, libc::SIGTERM] {
            // SAFETY: the set was made above.
            unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
        }
        // SAFETY: made above.
        let set = unsafe { set.assume_init() };
        // SAFETY: reads the set; the old mask is not asked for.
        let result = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        if result == 0 {
            Ok(Self(set))
        } else {
            Err(io::Error::from_raw_os_error(result)).context("cannot block signals")
        }
    }

    /// Wait for one of them.
    pub(crate) fn wait(&self) -> anyhow::Result<()> {
        let mut signal = 0;
        // SAFETY: reads the set and writes one int.
        let result = unsafe { libc::sigwait(&raw const self.0, &raw mut signal) };
        if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)).context("cannot wait for signals") }
    }
}
