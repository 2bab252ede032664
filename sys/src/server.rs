//! Servers: children of a spawner that continue in this program, without exec, and serve a channel
//! until it closes.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd, OwnedFd},
    panic::{AssertUnwindSafe, catch_unwind},
};

use rustix::process::Pid;
use seccompiler::{BpfProgram, apply_filter};

use crate::confinement::{Failed, at_filter, close_all_but, drop_privileges, follow};

/// Arguments of a server with a channel alone.
pub(crate) struct Start<'a> {
    pub(crate) channel: OwnedFd,
    /// Parent, which must still exist.
    pub(crate) spawner: Pid,
    pub(crate) may_change_user: bool,
    pub(crate) filter: &'a BpfProgram,
}

impl Start<'_> {
    /// Drops all privileges and descriptors that the server does not need, except its channel, and
    /// takes this name, and this user if it may.
    pub(crate) fn confine(&self, name: &CStr, user: u32) -> Result<(), Failed> {
        close_all_but(&[self.channel.as_raw_fd()])?;
        let _ = rustix::thread::set_name(name);
        drop_privileges(self.may_change_user.then_some(user))?;
        follow(Some(self.spawner))?;
        apply_filter(self.filter).map_err(at_filter)
    }
}

/// Serves until the end, and exits. The parent's objects are not dropped.
pub(crate) fn run(serve: impl FnOnce() -> io::Result<()>) -> ! {
    let served = catch_unwind(AssertUnwindSafe(serve));
    exit(i32::from(!matches!(served, Ok(Ok(())))))
}

#[expect(unsafe_code, reason = "an exit that runs nothing of the parent's")]
fn exit(status: i32) -> ! {
    // SAFETY: ends this process, which has no other thread.
    unsafe { libc::_exit(status) }
}
