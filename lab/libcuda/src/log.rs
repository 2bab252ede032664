//! Log of what programs do: JSON lines, the truth against which recorders are held.

use std::{
    fs::File,
    io::Write,
    sync::{Mutex, PoisonError},
    time::Instant,
};

use serde_json::{Map, Value};

/// Log of a process. Without a file it does nothing.
#[derive(Debug)]
pub(crate) struct Log {
    begun: Instant,
    written: Option<Mutex<Written>>,
}

#[derive(Debug)]
struct Written {
    file: File,
    sequence: u64,
}

impl Log {
    /// Log at `PATH.PID`, or none. A file that cannot be made is told on standard error.
    pub(crate) fn new(path: Option<&str>) -> Self {
        let written = path.and_then(|path| {
            let path = format!("{path}.{}", std::process::id());
            match File::create(&path) {
                Ok(file) => Some(Mutex::new(Written { file, sequence: 0 })),
                Err(error) => {
                    crate::errors::complain(&format!("no log at {path}: {error}"));
                    None
                }
            }
        });
        Self { begun: Instant::now(), written }
    }

    /// Writes a line, whose fields are made if there is a log. Lines are numbered in their order;
    /// returns the number, 0 without a log.
    pub(crate) fn write(&self, operation: &str, stream: u64, fields: impl FnOnce() -> Value) -> u64 {
        let Some(written) = &self.written else { return 0 };
        let fields = fields();
        let mut line = Map::new();
        line.insert("thread".into(), thread_id().into());
        line.insert("stream".into(), stream.into());
        line.insert("op".into(), operation.into());
        if let Value::Object(fields) = fields {
            line.extend(fields);
        }
        let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
        written.sequence += 1;
        line.insert("seq".into(), written.sequence.into());
        line.insert("t_ns".into(), u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX).into());
        // In one call, so that no end of the process loses or cuts a line.
        let _ = written.file.write_all(format!("{}\n", Value::Object(line)).as_bytes());
        written.sequence
    }
}

/// Id of the calling thread, the system's.
fn thread_id() -> i64 {
    #[expect(unsafe_code, reason = "a system call without arguments")]
    // SAFETY: always succeeds.
    let id = unsafe { libc::gettid() };
    id.into()
}
