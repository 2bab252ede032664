//! Kernel's log while the guest runs: a complaint of the driver, of the software GPU or of the
//! kernel makes a run invalid.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
};

use anyhow::Context;

use super::complaints::Judge;

/// Kernel's log, from some moment on.
pub(crate) struct Log {
    file: File,
    judge: Judge,
}

impl Log {
    /// Log from the boot on.
    pub(crate) fn whole() -> anyhow::Result<Self> {
        let log = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg");
        Ok(Self { file: log.context("cannot open the kernel's log, /dev/kmsg")?, judge: Judge::default() })
    }

    /// Log from now on.
    pub(crate) fn from_now() -> anyhow::Result<Self> {
        let mut log = Self::whole()?;
        log.file.seek(SeekFrom::End(0)).context("cannot go to the end of the kernel's log")?;
        Ok(log)
    }

    /// Complaints since the last call, oldest first.
    pub(crate) fn complaints(&mut self) -> anyhow::Result<Vec<String>> {
        let mut lost = Vec::new();
        // One read returns one record, of at most this size.
        let mut record = [0; 8192];
        loop {
            match next(&mut self.file, &mut record) {
                Ok(None) => break,
                Ok(Some(record)) => self.judge.read(message(&record)),
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {
                    lost.push("the kernel's log lost messages before they could be read".to_owned());
                }
                Err(error) => return Err(error).context("cannot read the kernel's log"),
            }
        }
        let mut found = self.judge.take();
        found.append(&mut lost);
        Ok(found)
    }
}

fn next(log: &mut File, record: &mut [u8]) -> io::Result<Option<String>> {
    match log.read(record) {
        Ok(length) => Ok(record.get(..length).map(|record| String::from_utf8_lossy(record).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Message of a record: `priority,sequence,time,flags;text`, then lines of properties.
fn message(record: &str) -> &str {
    record.split_once(';').map_or(record, |(_, text)| text).lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_its_message() {
        let record = "6,339,5140900,-;NET: Registered PF_INET6 protocol family\n SUBSYSTEM=net\n";
        assert_eq!(message(record), "NET: Registered PF_INET6 protocol family");
        assert_eq!(message("no semicolon"), "no semicolon");
        assert_eq!(message(""), "");
    }
}
