//! Main function of the process.

use std::{
    ffi::{CStr, OsStr},
    io::{self, Read, Write},
    os::fd::{AsFd, BorrowedFd},
    panic,
    process::ExitCode,
};

use rustix::fs::{FileType, fstat};

use super::{Limits, confinement};

/// Exit status of a process that could not confine itself.
pub(super) const NOT_CONFINED: i32 = 3;
/// Exit status after a panic.
pub(super) const PANICKED: i32 = 101;

/// Computation: reads its input, and writes its output as far as it is known.
pub type Compute = fn(&[u8], &mut dyn Write) -> io::Result<()>;

/// Runs a computation and exits, if this process was started as one with this argument. The process
/// takes this name. To be called first in main: there must be no other thread. Returns the status if
/// it was started by hand.
#[must_use]
pub fn run_if_sandboxed(argument: &str, name: &CStr, limits: Limits, compute: Compute) -> Option<ExitCode> {
    let mut words = std::env::args_os().skip(1);
    if words.next()? != OsStr::new(argument) || words.next().is_some() {
        return None;
    }
    let is_pipe = |fd: BorrowedFd<'_>| fstat(fd).is_ok_and(|file| FileType::from_raw_mode(file.st_mode).is_fifo());
    let (input, output) = (io::stdin(), io::stdout());
    if !is_pipe(input.as_fd()) || !is_pipe(output.as_fd()) {
        let _ = writeln!(io::stderr(), "{argument} is for uvmd itself, which starts it with pipes");
        return Some(ExitCode::from(2));
    }
    if let Err((step, error)) = confinement::confine(name, limits) {
        let _ = write!(io::stderr(), "cannot {step}: {}", crate::reason(&error));
        exit(NOT_CONFINED);
    }
    // Unwinding takes system calls, and there is no state to save.
    panic::set_hook(Box::new(|panic| {
        let _ = write!(io::stderr(), "{panic}");
        exit(PANICKED)
    }));
    let compute = || -> io::Result<()> {
        let mut bytes = Vec::new();
        let read = input.lock().read_to_end(&mut bytes);
        // As for a failure of any other allocation.
        if read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::OutOfMemory) {
            std::alloc::handle_alloc_error(std::alloc::Layout::for_value(bytes.as_slice()));
        }
        read?;
        let mut output = output.lock();
        compute(&bytes, &mut output)?;
        output.flush()
    };
    exit(i32::from(compute().is_err()))
}

#[expect(unsafe_code, reason = "an exit without system calls that the filter denies")]
fn exit(status: i32) -> ! {
    // SAFETY: ends this process, which has no other thread.
    unsafe { libc::_exit(status) }
}
