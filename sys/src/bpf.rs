//! Tracing programs on functions of a module: calls of bpf(2) that aya lacks.
//!
//! A tracing program is attached to a function by the function's type id in the BTF of its module,
//! and runs at its entry (fentry) or its return (fexit), without kprobes. While it is loaded, the
//! kernel does not unload the module.
#![expect(unsafe_code, reason = "bpf(2) has no safe wrapper")]

use std::{
    ffi::c_void,
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
};

use thiserror::Error;

/// Instruction of a program, as the kernel has it.
pub type Instruction = [u8; 8];

/// Commands of bpf(2).
const PROG_LOAD: libc::c_int = 5;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const BTF_GET_FD_BY_ID: libc::c_int = 19;
const BTF_GET_NEXT_ID: libc::c_int = 23;

/// `BPF_PROG_TYPE_TRACING`.
const TRACING: u32 = 26;
/// `BPF_TRACE_FENTRY`.
const AT_ENTRY: u32 = 24;
/// `BPF_TRACE_FEXIT`.
const AT_RETURN: u32 = 25;

/// Maximum bytes of a program's name, with the terminating zero.
const NAME_MAX: usize = 16;
/// Size of the verifier's log.
const LOG_BYTES: u32 = 1 << 16;
/// Maximum number of attempts to load a program.
const ATTEMPTS_MAX: u32 = 5;
/// Maximum number of type sets visited: one for each module, and those of programs.
const TYPES_MAX: u32 = 1 << 16;

/// Reason why a program was not loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The verifier rejected it; with the log.
    #[error("{error}")]
    Rejected {
        /// Error of the kernel.
        error: io::Error,
        /// Log of the verifier.
        log: String,
    },
    /// The kernel does not load it, for another reason.
    #[error("{0}")]
    Call(#[source] io::Error),
}

/// Program on a function of a module.
pub struct Tracing<'a> {
    /// Name, which the kernel truncates.
    pub name: &'a str,
    /// Relocated instructions.
    pub instructions: &'a [Instruction],
    /// Types of the module.
    pub types: BorrowedFd<'a>,
    /// Id of the function among them.
    pub function: u32,
    /// Whether it runs at the function's return.
    pub at_return: bool,
}

/// Attribute of `BPF_PROG_LOAD`.
#[derive(Default)]
#[repr(C)]
struct ProgLoad {
    kind: u32,
    instructions: u32,
    instructions_at: u64,
    license_at: u64,
    log_level: u32,
    log_bytes: u32,
    log_at: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; NAME_MAX],
    interface: u32,
    attach_type: u32,
    types: u32,
    function_record_bytes: u32,
    functions_at: u64,
    functions: u32,
    line_record_bytes: u32,
    lines_at: u64,
    lines: u32,
    attach_type_id: u32,
    attach_types: u32,
    padding: u32,
}

/// Attribute of `BPF_RAW_TRACEPOINT_OPEN`.
#[repr(C)]
struct RawTracepointOpen {
    name_at: u64,
    program: u32,
    padding: u32,
}

/// Attribute of `BPF_BTF_GET_NEXT_ID` and `BPF_BTF_GET_FD_BY_ID`.
#[derive(Default)]
#[repr(C)]
struct ById {
    id: u32,
    next_id: u32,
    flags: u32,
}

/// Attribute of `BPF_OBJ_GET_INFO_BY_FD`.
#[repr(C)]
struct GetInfo {
    fd: u32,
    info_bytes: u32,
    info_at: u64,
}

/// `struct bpf_btf_info`.
#[derive(Default)]
#[repr(C)]
struct TypesInfo {
    types_at: u64,
    types_bytes: u32,
    id: u32,
    name_at: u64,
    name_bytes: u32,
    is_of_kernel: u32,
}

// As the kernel has them.
const _: () = assert!(size_of::<ProgLoad>() == 120 && size_of::<RawTracepointOpen>() == 16);
const _: () = assert!(size_of::<ById>() == 12 && size_of::<GetInfo>() == 16 && size_of::<TypesInfo>() == 32);

/// Types of a loaded module, by its name; `None` if the kernel has none.
///
/// # Errors
/// If the kernel does not permit it: it takes `CAP_SYS_ADMIN`.
pub fn types_of_module(module: &str) -> io::Result<Option<OwnedFd>> {
    let mut id = 0;
    for _ in 0..TYPES_MAX {
        let mut next = ById { id, ..ById::default() };
        match bpf(BTF_GET_NEXT_ID, &mut next) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        id = next.next_id;
        match descriptor(BTF_GET_FD_BY_ID, &mut ById { id, ..ById::default() }) {
            Ok(types) if is_of(&types, module)? => return Ok(Some(types)),
            Ok(_) => {}
            // Freed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Whether types are those of the kernel's module of this name.
fn is_of(types: &OwnedFd, module: &str) -> io::Result<bool> {
    let mut name = [0_u8; 64];
    let mut info =
        TypesInfo { name_at: address(name.as_mut_ptr()), name_bytes: bytes_of(&name), ..TypesInfo::default() };
    let mut request =
        GetInfo { fd: number(types.as_raw_fd()), info_bytes: bytes_of(&info), info_at: address(&raw mut info) };
    match bpf(OBJ_GET_INFO_BY_FD, &mut request) {
        // A longer name.
        Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => return Ok(false),
        result => result?,
    };
    // Programs have types without that mark, under any name.
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(info.is_of_kernel == 1 && name == module.as_bytes())
}

impl Tracing<'_> {
    /// Loads the program.
    ///
    /// # Errors
    /// If the kernel rejects it.
    pub fn load(&self) -> Result<OwnedFd, LoadError> {
        let mut name = [0; NAME_MAX];
        for (place, byte) in name.iter_mut().zip(self.name.bytes().take(NAME_MAX - 1)) {
            *place = byte;
        }
        let license = c"Dual MIT/GPL";
        let mut request = ProgLoad {
            kind: TRACING,
            instructions: u32::try_from(self.instructions.len())
                .map_err(|_| LoadError::Call(io::ErrorKind::InvalidInput.into()))?,
            instructions_at: address(self.instructions.as_ptr()),
            license_at: address(license.as_ptr()),
            name,
            attach_type: if self.at_return { AT_RETURN } else { AT_ENTRY },
            attach_type_id: self.function,
            attach_types: number(self.types.as_raw_fd()),
            ..ProgLoad::default()
        };
        let mut attempts_left = ATTEMPTS_MAX;
        let error = loop {
            attempts_left -= 1;
            match descriptor(PROG_LOAD, &mut request) {
                Ok(program) => return Ok(program),
                // A signal interrupted the verifier.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && attempts_left > 0 => {}
                Err(error) => break error,
            }
        };
        // Once more for the reason, which costs the verifier time.
        let mut log = vec![0_u8; LOG_BYTES as usize];
        request.log_level = 1;
        request.log_bytes = LOG_BYTES;
        request.log_at = address(log.as_mut_ptr());
        if let Ok(program) = descriptor(PROG_LOAD, &mut request) {
            // A shortage that has passed.
            return Ok(program);
        }
        let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
        let log = String::from_utf8_lossy(log.get(..end).unwrap_or_default()).trim().to_owned();
        Err(if log.is_empty() { LoadError::Call(error) } else { LoadError::Rejected { error, log } })
    }
}

/// Attaches a tracing program to its function, until the result is dropped.
///
/// # Errors
/// If the kernel does not let it: without direct calls of ftrace, or because the function has none.
pub fn attach_tracing(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    descriptor(
        RAW_TRACEPOINT_OPEN,
        &mut RawTracepointOpen { name_at: 0, program: number(program.as_raw_fd()), padding: 0 },
    )
}

/// Calls bpf(2) with the attribute of a command.
fn bpf<T>(command: libc::c_int, attribute: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: the attribute is that of the command, has the size that is passed, and lives until the
    // call returns, as does all that it points to.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attribute), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Descriptor that a command returns.
fn descriptor<T>(command: libc::c_int, attribute: &mut T) -> io::Result<OwnedFd> {
    let fd = RawFd::try_from(bpf(command, attribute)?).map_err(io::Error::other)?;
    // SAFETY: the kernel just created the descriptor for this process.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn address<T>(pointer: *const T) -> u64 {
    pointer.cast::<c_void>().expose_provenance() as u64
}

/// Size of a value, for the kernel: some tens of bytes.
#[expect(clippy::cast_possible_truncation, reason = "some tens of bytes")]
const fn bytes_of<T>(_: &T) -> u32 {
    size_of::<T>() as u32
}

/// Descriptor as the kernel takes it: not negative.
const fn number(fd: RawFd) -> u32 {
    fd.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn module_that_is_not_loaded_has_no_types() {
        match types_of_module("no_such_module") {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => println!("skipped: {error}"),
            types => assert!(types.unwrap().is_none()),
        }
    }

    #[test]
    fn program_on_a_file_that_has_no_types_is_refused() {
        let file = tempfile::tempfile().unwrap();
        // r0 = 0; exit
        let instructions = [[0xb7, 0, 0, 0, 0, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
        let program = Tracing {
            name: "of_no_function",
            instructions: &instructions,
            types: file.as_fd(),
            function: 1,
            at_return: false,
        };
        assert!(matches!(program.load(), Err(LoadError::Call(_))));
    }
}
