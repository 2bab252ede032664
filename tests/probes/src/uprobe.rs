//! Attachment of a kprobe program to a function of this process.
#![expect(unsafe_code, reason = "perf_event_open has no wrapper that takes a program of another kind")]

use std::{
    ffi::CString,
    fs, io,
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
};

use aya::programs::ProgramFd;

use crate::private_file;

const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;
const PERF_EVENT_IOC_ENABLE: libc::c_ulong = 0x2400;
const PERF_EVENT_IOC_SET_BPF: libc::c_ulong = 0x4004_2408;

/// `struct perf_event_attr`, up to its second version.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    /// For this PMU, 1 for the function's return.
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    /// Address of the file's name.
    config1: u64,
    /// Offset in the file.
    config2: u64,
}

/// Attaches a program to a function's entry, or to its return, until the result is dropped.
///
/// # Errors
/// If the kernel lacks uprobes, or this process may not use them.
pub fn attach(program: &ProgramFd, address: u64, at_return: bool) -> io::Result<OwnedFd> {
    assert!(private_file::is_copy(), "uprobes of this process would reach others");
    let (path, offset) = (CString::new(private_file::EXECUTABLE)?, file_offset(address)?);
    let pmu = fs::read_to_string("/sys/bus/event_source/devices/uprobe/type")?;
    let pmu: u32 = pmu.trim().parse().map_err(io::Error::other)?;

    let attributes = Attributes {
        kind: pmu,
        size: 72, // PERF_ATTR_SIZE_VER1
        config: u64::from(at_return),
        sample_period: 1,
        sample_type: 0,
        read_format: 0,
        flags: 0,
        wakeup_events: 1,
        breakpoint_type: 0,
        config1: path.as_ptr() as u64,
        config2: offset,
    };
    // SAFETY: the attributes have the size that they name, and the path lives until the call
    // returns.
    let fd =
        unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attributes, -1, 0, -1, PERF_FLAG_FD_CLOEXEC) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel just created the descriptor for this process.
    let event = unsafe { OwnedFd::from_raw_fd(fd) };

    for (request, argument) in [(PERF_EVENT_IOC_SET_BPF, program.as_fd().as_raw_fd()), (PERF_EVENT_IOC_ENABLE, 0)] {
        // SAFETY: neither request takes a pointer.
        if unsafe { libc::ioctl(event.as_raw_fd(), request, argument) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(event)
}

/// Offset of an address of this process in the executable.
fn file_offset(address: u64) -> io::Result<u64> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let found = maps.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let (begin, end) = fields.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (begin, end) = (number(begin)?, number(end)?);
        let offset = number(fields.nth(1)?)?;
        (begin..end).contains(&address).then(|| address - begin + offset)
    });
    found.ok_or_else(|| io::Error::other("the function is not mapped"))
}

/// Calls a function in a child process. It must not need any lock of this process, and may call
/// only functions without effects. It must not call a function of the fake driver that this process
/// has called since its probes were attached: newer kernels have replaced its NOP by a call then,
/// whose target a forked process lacks.
///
/// # Errors
/// If no process can be created, or it fails.
pub fn in_another_process(act: impl FnOnce()) -> io::Result<()> {
    // SAFETY: the child calls `act`, which fulfils the above by contract, and exits.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            act();
            // SAFETY: ends this process without running any code of the parent's objects.
            unsafe { libc::_exit(0) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the status outlives the call.
            let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
            if waited == child && status == 0 { Ok(()) } else { Err(io::Error::other(format!("status {status}"))) }
        }
    }
}
