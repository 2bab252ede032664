//! The programs on the driver of the lab, in place of any other libcuda.

use std::{
    env, fs,
    io::Write,
    os::unix::fs::symlink,
    path::PathBuf,
    process::{Command, Stdio},
};

pub(crate) const WORKLOAD: &str = env!("CARGO_BIN_EXE_uvm-workload");
pub(crate) const GPU_CHECK: &str = env!("CARGO_BIN_EXE_gpu-check");

/// Program that loads the lab's driver instead of any other libcuda.
pub(crate) fn on_stand_in(program: &str) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", folder());
    command
}

/// Runs `uvm-workload` with this standard input.
pub(crate) fn with_input(arguments: &[&str], input: &str) -> (i32, String, String) {
    let piped = || Stdio::piped();
    let mut command = on_stand_in(WORKLOAD);
    let mut child = command.args(arguments).stdin(piped()).stdout(piped()).stderr(piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Folder in which the loader finds the driver of the lab, as built for these tests.
fn folder() -> PathBuf {
    let folder = env::current_exe().unwrap().parent().unwrap().join("cuda-lab");
    fs::create_dir_all(&folder).unwrap();
    // Another test may make it at the same time.
    let _ = symlink("../libcuda_lab.so", folder.join("libcuda.so"));
    assert!(folder.join("libcuda.so").exists(), "no driver in {}", folder.display());
    folder
}
