//! The programs on a stand-in for libcuda.

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
};

pub(crate) const WORKLOAD: &str = env!("CARGO_BIN_EXE_uvm-workload");
pub(crate) const GPU_CHECK: &str = env!("CARGO_BIN_EXE_gpu-check");

/// Program that loads the stand-in instead of any other libcuda.
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

/// Folder of the stand-in, compiled once.
fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stand-in");
        fs::create_dir_all(&folder).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/libcuda.c");
        let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let options = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o"];
        let built = Command::new(compiler).args(options).arg(folder.join("libcuda.so")).arg(source).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        folder
    })
}
