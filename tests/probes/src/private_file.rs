//! Copy of the executable for each process. Uprobes are of a file: those of one test would otherwise reach the
//! processes of all others.
#![expect(unsafe_code, reason = "a function that runs before main")]

use std::{
    env,
    ffi::OsStr,
    fs::File,
    io,
    os::{
        fd::{AsRawFd, FromRawFd},
        unix::process::CommandExt,
    },
    process::{self, Command},
};

/// The executable of this process, by a name that uprobes can be attached to.
pub(crate) const EXECUTABLE: &str = "/proc/self/exe";
/// Variable in the environment of processes that run a copy.
const IS_COPY: &str = "UVMD_PROBES_TEST_IS_COPY";

/// Runs before `main`, as the C library runs the functions of this section.
#[used]
// SAFETY: the C library calls the functions of this section with arguments that this one does not read.
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    let makes_list = env::args_os().any(|argument| argument == "--list");
    if !is_copy() && !makes_list {
        let Err(error) = execute_copy();
        eprintln!("the test cannot run from a copy of its file: {error}");
        process::exit(1);
    }
}

/// Whether this process runs a copy.
pub(crate) fn is_copy() -> bool {
    env::var_os(IS_COPY).is_some()
}

fn execute_copy() -> io::Result<std::convert::Infallible> {
    // SAFETY: the name is a C string.
    let copy = unsafe { libc::memfd_create(c"probes-test".as_ptr(), libc::MFD_CLOEXEC) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just created the descriptor for this process.
    let mut copy = unsafe { File::from_raw_fd(copy) };
    io::copy(&mut File::open(EXECUTABLE)?, &mut copy)?;
    let mut arguments = env::args_os();
    let name = arguments.next();
    let program = format!("/proc/self/fd/{}", copy.as_raw_fd());
    let mut command = Command::new(program);
    command.arg0(name.as_deref().unwrap_or(OsStr::new("probes-test"))).args(arguments).env(IS_COPY, "1");
    Err(command.exec())
}
