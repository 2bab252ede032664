//! Process with many descriptors, or without its first thread.

use std::{
    fs,
    io::Read,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Test process, killed on drop. It is compiled at its start: linking Rust requires a C compiler.
pub struct Process(Child);

impl Process {
    /// Process with this file open twice, as descriptors 3 and 4, and this many more descriptors of
    /// the first.
    #[must_use]
    pub fn with_copies(file: &Path, copies: usize) -> Self {
        Self::start(file, copies, "stay")
    }

    /// Process with this file open twice, as descriptors 3 and 4, whose first thread has exited.
    #[must_use]
    pub fn leaderless(file: &Path) -> Self {
        let process = Self::start(file, 0, "exit");
        let deadline = Instant::now() + Duration::from_mins(1);
        while !fs::read_to_string(format!("/proc/{}/stat", process.pid())).unwrap().contains(") Z ") {
            assert!(Instant::now() < deadline, "its first thread does not exit");
            thread::sleep(Duration::from_millis(1));
        }
        process
    }

    fn start(file: &Path, copies: usize, first_thread: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (source, program) = (folder.path().join("process.c"), folder.path().join("process"));
        fs::write(&source, include_str!("process.c")).unwrap();
        let compiled = Command::new("cc").arg("-pthread").arg("-o").args([&program, &source]).status().unwrap();
        assert!(compiled.success());
        let mut command = Command::new(&program);
        command.arg(file).args([&copies.to_string(), first_thread]).stdout(Stdio::piped());
        let mut process = Self(command.spawn().unwrap());
        process.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        process
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
