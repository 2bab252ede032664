//! Parts of the tools that test scripts run in place of uvmd, with a program that has the helper:
//!
//! * `record` writes the calls of a program that it starts
//! * `plan` publishes plans from commands for a program that runs
//! * `follow` makes and publishes plans for a program that it starts

use std::{
    ffi::{OsStr, OsString},
    process::{Command, ExitCode, ExitStatus},
};

use sys::{executable::Program, shared_memory::set_accessor_program};

/// UUID of device 0 of the lab's CUDA driver on its plain-memory backend (no software GPU).
pub const DEFAULT_GPU: [u8; 16] = *b"lab GPU, plain \x01";

/// Command that starts a program with the helper, which records its calls.
pub fn recorded(helper: &OsStr, program: &OsStr, arguments: impl IntoIterator<Item = OsString>) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).env("LD_PRELOAD", helper).env("UVMD_HELPER", "record");
    command
}

/// Prepares the accessors of shared memory. To be called first in `main`. Returns the exit code if
/// this process was started as their spawner.
#[must_use]
pub fn prepare() -> Option<ExitCode> {
    let spawner_exit = sys::actor::run_if_spawner();
    set_accessor_program(Program::this());
    spawner_exit
}

/// Exit code of the program; 255 after a signal.
#[must_use]
pub fn exit_code(status: ExitStatus) -> ExitCode {
    ExitCode::from(u8::try_from(status.code().unwrap_or(255)).unwrap_or(255))
}
