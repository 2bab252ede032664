//! Audit log: changes with their requester, decisions with their outcomes, and denied requests;
//! one JSON object per line. Append-only.
//!
//! * Lines of decisions and denials do not wait; those that cannot be written are counted. Data
//!   that must be on the disk before an action are in the actuator's journal.
//! * The line of a change is on the disk before the change. A change without its line is rejected,
//!   unless it only reduces what uvmd does.
//!
//! `entry`: its lines; `denials`: their rate limit; `rotating`: its files.

mod denials;
mod entry;
mod rotating;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::AtomicU64,
        mpsc::{self, SyncSender},
    },
    time::Duration,
};

pub(crate) use denials::Denials;
use entry::Entry;
pub(crate) use entry::{Change, Outcome};
use rotating::Rotating;
pub(crate) use rotating::Rotation;
use serde::Serialize;
use web::{Requester, Warnings};

use crate::log::{
    Dropped,
    writer::{self, Message},
};

/// Time limit for a line to reach the disk: a request waits for it.
const RECORDING: Duration = Duration::from_secs(1);

/// Handle of the audit log. Cheap to clone; all clones share one log.
#[derive(Clone, Debug)]
pub(crate) struct Audit {
    queue: SyncSender<Message>,
    dropped: Dropped,
    /// Maximum wait of a change for its line.
    timeout: Duration,
}

impl Audit {
    /// Appends to the file at `path`. If that cannot be opened and `must_open` is not set, each
    /// line retries.
    pub(crate) fn start(path: &Path, rotation: Rotation, must_open: bool, warnings: Warnings) -> anyhow::Result<Self> {
        let dropped = Dropped::default();
        let destination = Rotating::open(path, rotation, must_open, warnings)?;
        let queue = writer::write_to("uvmd-audit", destination, dropped.clone())?;
        Ok(Self { queue, dropped, timeout: RECORDING })
    }

    /// Writes a line without waiting.
    pub(crate) fn write(&self, requester: Option<&Requester>, change: &Change) {
        self.write_event(&Entry::new(change, requester));
    }

    /// Writes the line of a decision.
    pub(crate) fn write_event(&self, event: &impl Serialize) {
        let line = line(event);
        if line.is_none_or(|line| self.queue.try_send(Message::Line(line)).is_err()) {
            self.dropped.count_one();
        }
    }

    /// Writes the line of a change to the disk before the change. May wait for the disk.
    ///
    /// # Errors
    /// Reason to reject the change, only if `must_be_recorded`. Otherwise the change takes place
    /// anyway, and the line counts as dropped.
    pub(crate) fn change(
        &self,
        requester: Option<&Requester>,
        change: &Change,
        must_be_recorded: bool,
    ) -> Result<(), String> {
        let Err(why) = self.record(&Entry::new(change, requester)) else { return Ok(()) };
        if must_be_recorded {
            // The line may still be written later.
            self.failed(requester, change, why.clone());
            return Err(why);
        }
        self.dropped.count_one();
        tracing::warn!("a change in effect is not in the audit log: {why}");
        Ok(())
    }

    /// Writes that a change failed.
    pub(crate) fn failed(&self, requester: Option<&Requester>, change: &Change, reason: String) {
        self.write(requester, &change.clone().failed(reason));
    }

    fn record(&self, entry: &Entry<'_>) -> Result<(), String> {
        let (done, is_done) = mpsc::sync_channel(1);
        let line = line(entry).ok_or("it has no JSON")?;
        self.queue.try_send(Message::Record(line, done)).map_err(|_| "too many lines are pending")?;
        let written = is_done.recv_timeout(self.timeout);
        written.map_err(|_| format!("nothing could be written to it for {} s", self.timeout.as_secs()))?
    }

    /// Reopens the file, for log rotation.
    pub(crate) fn reopen(&self) {
        // If the queue is full, the next line checks the file anyway.
        let _ = self.queue.try_send(Message::Reopen);
    }

    /// Waits until all queued lines are written, but not for a stuck disk.
    pub(crate) fn flush(&self) {
        writer::flush(&self.queue, writer::LAST_LINES);
    }

    /// Number of dropped lines; the log's writer reports them too.
    pub(crate) fn dropped(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.dropped.0)
    }
}

fn line(event: &impl Serialize) -> Option<Vec<u8>> {
    let mut line = serde_json::to_vec(event).ok()?;
    line.push(b'\n');
    Some(line)
}

#[cfg(test)]
pub(crate) mod testing {
    use std::{fs, path::Path};

    use serde_json::Value;

    use super::*;

    /// Audit log in this folder, with files that are never full.
    pub(crate) fn audit(folder: &Path) -> Audit {
        let rotation = Rotation { file_bytes_max: u64::MAX, files_max: 1 };
        patient(Audit::start(&folder.join("audit.jsonl"), rotation, false, Warnings::default()).unwrap())
    }

    /// Audit log with a long wait, for a busy machine.
    pub(crate) fn patient(audit: Audit) -> Audit {
        Audit { timeout: Duration::from_mins(1), ..audit }
    }

    /// Waits until all queued lines are written.
    pub(crate) fn flush(audit: &Audit) {
        writer::flush(&audit.queue, Duration::from_mins(1));
    }

    /// Lines of the log in this folder.
    pub(crate) fn lines(folder: &Path) -> Vec<Value> {
        let text = fs::read_to_string(folder.join("audit.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::atomic::Ordering};

    use web::{Credential, Grant, Peer, Warning};

    use super::{
        testing::{flush, lines, patient},
        *,
    };

    const OFF: Change = Change::PolicyOff { result: Outcome::Accepted };

    fn somebody() -> Requester {
        let peer = Peer::Local { uid: 7, pid: Some(70), grant: Some(Grant::Write) };
        Requester { peer, credential: Credential::Socket }
    }

    #[test]
    fn full_file_is_rotated_and_the_oldest_deleted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        fs::write(&path, "\"of an earlier run\"\n").unwrap();
        let rotation = Rotation { file_bytes_max: 20, files_max: 2 };
        let audit = Audit::start(&path, rotation, true, Warnings::default()).unwrap();
        for number in 0..9 {
            audit.write_event(&format!("event number {number}"));
        }
        flush(&audit);
        let lines = |path: &Path| -> Vec<String> {
            fs::read_to_string(path).unwrap_or_default().lines().map(ToOwned::to_owned).collect()
        };
        let named = |number: u32| lines(&folder.path().join(format!("audit.jsonl.{number}")));
        let event = |number: u32| format!("\"event number {number}\"");
        assert_eq!(lines(&path), [event(8)]);
        assert_eq!((named(1), named(2), named(3)), (vec![event(6), event(7)], vec![event(4), event(5)], Vec::new()));
        assert_eq!(audit.dropped().load(Ordering::Relaxed), 0);
    }

    #[test]
    fn change_and_requester_are_on_the_disk_before_the_change() {
        let folder = tempfile::tempdir().unwrap();
        let audit = testing::audit(folder.path());
        audit.change(Some(&somebody()), &OFF, true).unwrap();
        let mut line = lines(folder.path()).remove(0);
        assert!(line.as_object_mut().unwrap().remove("time").is_some());
        let requester = serde_json::json!({ "uid": 7, "pid": 70, "credential": "socket", "grant": "write" });
        assert_eq!(line, serde_json::json!({ "type": "policy_off", "result": "accepted", "requester": requester }));
    }

    #[test]
    fn unwritable_change_is_rejected_or_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("none/audit.jsonl");
        let rotation = Rotation { file_bytes_max: u64::MAX, files_max: 1 };
        let warnings = Warnings::default();
        assert!(Audit::start(&path, rotation, true, warnings.clone()).is_err());
        let audit = patient(Audit::start(&path, rotation, false, warnings.clone()).unwrap());
        assert!(warnings.is_active(Warning::AuditUnavailable));
        let why = audit.change(Some(&somebody()), &OFF, true).unwrap_err();
        assert_eq!(why, "no such file or directory");
        audit.change(Some(&somebody()), &OFF, false).unwrap();
        flush(&audit);
        // The line that reports the failure of the first, and the second.
        assert_eq!(audit.dropped().load(Ordering::Relaxed), 2);
        fs::create_dir(folder.path().join("none")).unwrap();
        audit.change(Some(&somebody()), &OFF, true).unwrap();
        assert!(!warnings.is_active(Warning::AuditUnavailable));
    }
}
