//! The kernel's log: a complaint of the driver, of the software GPU or of the kernel makes a run invalid.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
};

use anyhow::Context;

/// What nvidia-uvm says when nothing is wrong; everything else it says is a complaint.
const DRIVER_SAYS: [&str; 3] =
    ["Loaded the UVM driver, major device number", "Unloaded the UVM driver", "Built-in UVM tests are enabled"];
/// What the software GPU says when something is wrong.
const SWGPU_COMPLAINS: [&str; 4] = ["error", "warning", "unknown", "unexpected"];
/// What the kernel says when something is wrong with it.
const KERNEL_COMPLAINS: [&str; 9] = [
    "BUG:",
    "Oops",
    "WARNING: CPU:",
    "Call Trace:",
    "kernel BUG at",
    "general protection fault",
    "blocked for more than",
    "Out of memory:",
    "self-detected stall",
];

/// An assert of a debug build that minds the model, not the run: the GPU's registers are memory here, so that GET still has for a moment the
/// flags that the driver wrote into it to clear them, which a card reads as 0. As in `scripts/lab`.
const MODEL_LIMIT: [&str; 2] = ["uvm_hal_volta_fault_buffer_read_get[", "replayable.max_faults not true"];
const TRACE: &str = "Call Trace:";

/// The kernel's log, from some moment on.
pub(crate) struct Log(File);

impl Log {
    /// From the machine's start on.
    pub(crate) fn whole() -> anyhow::Result<Self> {
        let log = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg");
        Ok(Self(log.context("cannot open the kernel's log, /dev/kmsg")?))
    }

    /// What is said from now on.
    pub(crate) fn from_now() -> anyhow::Result<Self> {
        let Self(mut log) = Self::whole()?;
        log.seek(SeekFrom::End(0)).context("cannot go to the end of the kernel's log")?;
        Ok(Self(log))
    }

    /// The complaints up to now that were not given before, oldest first.
    pub(crate) fn complaints(&mut self) -> anyhow::Result<Vec<String>> {
        let mut found = Vec::new();
        // The stack that follows is the assert's own.
        let mut excused = false;
        // One read is one record, of at most this size.
        let mut record = [0; 8192];
        loop {
            match next(&mut self.0, &mut record) {
                Ok(None) => return Ok(found),
                Ok(Some(record)) => {
                    let Some(said) = complaint(message(&record)) else { continue };
                    if MODEL_LIMIT.iter().all(|part| said.contains(part)) {
                        excused = true;
                    } else if !(std::mem::take(&mut excused) && said.contains(TRACE)) {
                        found.push(said.to_owned());
                    }
                }
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {
                    found.push("the kernel's log lost messages before they could be read".to_owned());
                }
                Err(error) => return Err(error).context("cannot read the kernel's log"),
            }
        }
    }
}

fn next(log: &mut File, record: &mut [u8]) -> io::Result<Option<String>> {
    match log.read(record) {
        Ok(length) => Ok(record.get(..length).map(|record| String::from_utf8_lossy(record).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// The text of a record: `priority,sequence,time,flags;text`, then lines of properties.
fn message(record: &str) -> &str {
    record.split_once(';').map_or(record, |(_, text)| text).lines().next().unwrap_or_default()
}

/// The message, if it says that something is wrong.
fn complaint(message: &str) -> Option<&str> {
    let wrong = if let Some(said) = message.strip_prefix("nvidia-uvm: ") {
        !DRIVER_SAYS.iter().any(|harmless| said.starts_with(harmless))
    } else if let Some(said) = message.strip_prefix("swgpu: ") {
        let said = said.to_lowercase();
        SWGPU_COMPLAINS.iter().any(|word| said.contains(word))
    } else {
        message.starts_with("NVRM: ") || KERNEL_COMPLAINS.iter().any(|words| message.contains(words))
    };
    wrong.then_some(message)
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

    #[test]
    fn what_is_always_said_is_no_complaint() {
        for harmless in [
            "nvidia-uvm: Loaded the UVM driver, major device number 240.",
            "nvidia_uvm: module uses symbols nvUvmInterfaceDisableAccessCntr from proprietary module nvidia, inheriting taint.",
            "nvidia: loading out-of-tree module taints kernel.",
            "swgpu: hopper, 64 MiB",
            "Spectre V2 : WARNING: Unprivileged eBPF is enabled with eIBRS on, data leaks possible via Spectre v2 BHB attacks!",
            "",
        ] {
            assert_eq!(complaint(harmless), None);
        }
    }

    #[test]
    fn a_warning_of_driver_gpu_or_kernel_is_a_complaint() {
        for wrong in [
            "nvidia-uvm: uvm_gpu.c:1234 add_gpu[pid:77] Assert failed, condition ...",
            "nvidia-uvm: something never seen before",
            "NVRM: Xid 31",
            "swgpu: error: unknown method 0x1234 of subchannel 4",
            "WARNING: CPU: 0 PID: 100 at kernel/workqueue.c:123",
            "BUG: kernel NULL pointer dereference, address: 0000000000000008",
            "Oops: 0000 [#1] PREEMPT SMP NOPTI",
            "INFO: task uvmd:100 blocked for more than 120 seconds.",
        ] {
            assert_eq!(complaint(wrong), Some(wrong));
        }
    }
}
