//! Program whose ring is read.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    process::{Child, ChildStdout, Command, Stdio},
};

use model::ProcessId;
use sys::{Roots, processes};

/// Creates a ring as the helper does, with a record for each line of its input, and exits at its
/// end.
pub(crate) const PROGRAM: &str = r#"
import fcntl, mmap, os, struct, sys
size, major, lanes, kind = map(int, sys.argv[1:])
memory = os.memfd_create("uvmd-ring", os.MFD_ALLOW_SEALING)
os.posix_fallocate(memory, 0, size)
fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
ring = mmap.mmap(memory, size)
def put(at, *words): ring[at:at + 8 * len(words)] = struct.pack(f"<{len(words)}Q", *words)
put(8, major << 32, size, lanes)
put(128, 1)
put(0, int.from_bytes(b"UVMDRING", "little"))
print("ready", flush=True)
for count, _ in enumerate(sys.stdin):
    put(8192 + count * 64, count, 0, 1 << 32 | kind, 0, 0x10000, 0, 0, 0)
    put(64, count + 1)
    put(256, count + 1)
    print("written", flush=True)
"#;

/// Python program, which answers each line of input by one of output.
pub(crate) struct Program {
    pub(crate) child: Child,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Starts a program with these arguments, as a user, and waits for its first line.
    pub(crate) fn of(uid: u32, program: &str, numbers: &[usize]) -> Self {
        let mut python = Command::new("python3");
        let numbers = numbers.iter().map(usize::to_string);
        let python = python.uid(uid).args(["-c", program]).args(numbers).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = python.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut program = Self { child, output };
        program.wait_for_line();
        program
    }

    fn wait_for_line(&mut self) -> String {
        let mut line = String::new();
        assert_ne!(self.output.read_line(&mut line).unwrap(), 0);
        line.trim().to_owned()
    }

    /// Sends a line of input, and returns the next line of output.
    pub(crate) fn answer(&mut self) -> String {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        self.wait_for_line()
    }

    pub(crate) fn call(&mut self) {
        self.answer();
    }

    pub(crate) fn id(&self) -> ProcessId {
        let start_ticks = processes::start_ticks(&Roots::default(), self.child.id()).unwrap().unwrap();
        ProcessId { pid: self.child.id(), start_ticks }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
