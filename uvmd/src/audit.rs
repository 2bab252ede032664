//! The audit log: what was decided and done, a JSON object a line, for whoever wants to know later. It is only ever appended to; a file that is full
//! becomes `NAME.1`, that one `NAME.2`, and so on, and the oldest goes.
//!
//! Nothing waits for it: lines that cannot be written are counted. What must be on the disk before something is done is the actuator's journal.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::mpsc::SyncSender,
};

use serde::Serialize;

use crate::log::{
    Dropped,
    aside::{self, Destination, Message},
    file::LogFile,
};

/// The way into the audit log.
pub(crate) struct Audit {
    queue: SyncSender<Message>,
    dropped: Dropped,
}

/// How much of it is kept.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rotation {
    /// A file that is as large takes no more.
    pub(crate) file_bytes_max: u64,
    /// Full files that are kept beside the one that is written.
    pub(crate) files_max: u32,
}

impl Audit {
    /// Appends to the file at `path`.
    pub(crate) fn start(path: &Path, rotation: Rotation) -> anyhow::Result<Self> {
        let dropped = Dropped::default();
        let destination = Rotating { path: path.to_owned(), file: LogFile::open(path)?, rotation };
        Ok(Self { queue: aside::write_to("uvmd-audit", destination, dropped.clone())?, dropped })
    }

    /// Writes a line.
    pub(crate) fn write(&self, event: &impl Serialize) {
        let line = serde_json::to_vec(event).map(|mut line| {
            line.push(b'\n');
            line
        });
        if line.is_err() || line.is_ok_and(|line| self.queue.try_send(Message::Line(line)).is_err()) {
            self.dropped.count_one();
        }
    }

    /// Lines that could not be written; what writes the log tells of them too.
    #[cfg(test)]
    const fn dropped(&self) -> &Dropped {
        &self.dropped
    }
}

impl Drop for Audit {
    fn drop(&mut self) {
        aside::flush(&self.queue);
    }
}

/// See the module's documentation.
struct Rotating {
    path: PathBuf,
    file: LogFile,
    rotation: Rotation,
}

impl Rotating {
    fn numbered(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }

    /// The file that is written becomes the first of the full ones.
    fn rotate(&self) -> io::Result<()> {
        let Rotation { files_max, .. } = self.rotation;
        for number in (1..files_max).rev() {
            match fs::rename(self.numbered(number), self.numbered(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if files_max == 0 { fs::remove_file(&self.path) } else { fs::rename(&self.path, self.numbered(1)) }
    }
}

impl Destination for Rotating {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let is_full = |file: fs::Metadata| file.is_file() && file.len() >= self.rotation.file_bytes_max;
        if fs::symlink_metadata(&self.path).is_ok_and(is_full) {
            self.rotate()?;
        }
        self.file.append(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &Path) -> Vec<String> {
        fs::read_to_string(path).unwrap_or_default().lines().map(ToOwned::to_owned).collect()
    }

    #[test]
    fn a_full_file_is_followed_by_another_and_the_oldest_goes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        fs::write(&path, "\"of an earlier run\"\n").unwrap();
        let audit = Audit::start(&path, Rotation { file_bytes_max: 20, files_max: 2 }).unwrap();
        for number in 0..9 {
            audit.write(&format!("event number {number}"));
        }
        let dropped = audit.dropped().clone();
        drop(audit);
        let named = |number: u32| lines(&folder.path().join(format!("audit.jsonl.{number}")));
        let event = |number: u32| format!("\"event number {number}\"");
        assert_eq!(lines(&path), [event(8)]);
        assert_eq!((named(1), named(2), named(3)), (vec![event(6), event(7)], vec![event(4), event(5)], Vec::new()));
        assert_eq!(dropped.get(), 0);
    }
}
