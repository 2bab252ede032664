//! Identification of the target process, as opposed to another with its id.

use std::io;

use model::{CallResult, ProcessId};
use sys::{
    Roots,
    pidfd::{PidFd, PidFdError},
    processes,
    uvm::{Status, UvmError},
};

/// Opens the process; otherwise returns the call result.
pub(crate) fn open_process(roots: &Roots, id: ProcessId) -> Result<PidFd, CallResult> {
    let process = PidFd::open(id.pid).map_err(|error| open_error_result(&error))?;
    // Checked after the open: if the intended process has the id now, it had it then. The handle does not
    // prevent later reuse of the id, but shows that the process has exited.
    match is_alive(roots, id) {
        Ok(true) => Ok(process),
        Ok(false) => Err(CallResult::Exited),
        Err(error) => {
            let why = sys::reason(&error);
            Err(CallResult::Failed(format!("its identity cannot be verified: {why}")))
        }
    }
}

/// Whether this process exists. False if its id has no start time.
///
/// # Errors
/// If /proc is unreadable, as with too many open files: it may exist then.
pub(crate) fn is_alive(roots: &Roots, id: ProcessId) -> io::Result<bool> {
    Ok(id.start_ticks != 0 && processes::start_ticks(roots, id.pid)? == Some(id.start_ticks))
}

/// Call result of an error of opening a process.
pub(crate) fn open_error_result(error: &PidFdError) -> CallResult {
    match error {
        PidFdError::NoProcess(_) => CallResult::Exited,
        other => CallResult::Failed(other.to_string()),
    }
}

/// Call result of an error of a call on an open process.
pub(crate) fn call_error_result(process: &PidFd, error: &UvmError) -> CallResult {
    match error {
        UvmError::Process(error) => open_error_result(error),
        // An exiting process may give all of these errors.
        _ if process.has_exited().unwrap_or_default() => CallResult::Exited,
        UvmError::Refused { status: Status::INVALID_ADDRESS, .. } => CallResult::NotMapped,
        other => CallResult::Failed(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use procfs::process::Process;
    use sys::fake::Machine;

    use super::*;

    fn own() -> ProcessId {
        let stat = Process::myself().unwrap().stat().unwrap();
        ProcessId { pid: std::process::id(), start_ticks: stat.starttime }
    }

    #[test]
    fn reused_pid_is_not_mistaken_for_the_target() {
        let roots = Roots::default();
        let ProcessId { pid, start_ticks } = own();
        assert_eq!(open_process(&roots, own()).unwrap().pid(), pid);
        assert_eq!(
            open_process(&roots, ProcessId { pid, start_ticks: start_ticks + 1 }).unwrap_err(),
            CallResult::Exited
        );
        assert_eq!(open_process(&roots, ProcessId { pid, start_ticks: 0 }).unwrap_err(), CallResult::Exited);
        assert_eq!(open_process(&roots, ProcessId { pid: u32::MAX, start_ticks }).unwrap_err(), CallResult::Exited);
    }

    #[test]
    fn unreadable_process_has_not_exited() {
        let ProcessId { pid, start_ticks } = own();
        // A folder is unreadable, as is any file with too many open files.
        let machine = Machine::new().with(&format!("proc/{pid}/stat/x"), "");
        let result = open_process(&machine.roots, ProcessId { pid, start_ticks }).unwrap_err();
        let CallResult::Failed(why) = result else { panic!("{result:?}") };
        assert!(why.ends_with("cannot be verified: is a directory"), "{why}");
    }

    #[test]
    fn driver_errors_of_an_exiting_process_mean_exit() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = PidFd::open(child.id()).unwrap();
        let refused = |status| UvmError::Refused { request: "UVM_MIGRATE", status };
        assert_eq!(call_error_result(&process, &refused(Status::INVALID_ADDRESS)), CallResult::NotMapped);
        // A process is inspected only if it has managed memory.
        assert!(matches!(call_error_result(&process, &UvmError::NoVaSpace(1)), CallResult::Failed(_)));
        let detail = "UVM_MIGRATE failed: the driver returned NV_ERR_ILLEGAL_ACTION";
        assert_eq!(
            call_error_result(&process, &refused(Status::ILLEGAL_ACTION)),
            CallResult::Failed(detail.to_owned())
        );
        assert!(matches!(call_error_result(&process, &PidFdError::NotPermitted(1).into()), CallResult::Failed(_)));
        child.kill().unwrap();
        child.wait().unwrap();
        for error in [refused(Status::INVALID_ADDRESS), refused(Status::ILLEGAL_ACTION), UvmError::NoVaSpace(1)] {
            assert_eq!(call_error_result(&process, &error), CallResult::Exited, "{error}");
        }
    }
}
