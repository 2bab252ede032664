//! Actions on a running process from outside: taking its VA space, attaching the driver's counters,
//! migrating its pages.

use std::time::Duration;

use anyhow::Context;
use sys::{
    Roots,
    pidfd::{PidFd, PidFdError},
    record_queue::RecordQueue,
    uvm::{
        Uuid, UvmError,
        call::Call,
        counters::{Counted, Counters},
        mapped,
        pages::PageRange,
        records::EventKind,
        target::VaSpace,
    },
};

/// Size of the driver's blocks: no call blocks the target for longer than one takes.
const PART_BYTES: u64 = 2 << 20;

/// Process accessed from outside. It is dropped before the process exits or right after, since
/// attached counters keep its VA space alive.
pub(crate) struct RemoteProcess {
    process: PidFd,
    roots: Roots,
    counters: Option<Counters>,
}

impl RemoteProcess {
    /// Opens a process, and takes its VA space once as a check.
    pub(crate) fn open(pid: u32) -> anyhow::Result<Self> {
        let remote = Self { process: PidFd::open(pid)?, roots: Roots::default(), counters: None };
        remote.va_space()?;
        Ok(remote)
    }

    /// Opens a process, and attaches the driver's counters.
    pub(crate) fn attach(pid: u32) -> anyhow::Result<Self> {
        let mut remote = Self::open(pid)?;
        remote.attach_counters()?;
        Ok(remote)
    }

    pub(crate) fn attach_counters(&mut self) -> anyhow::Result<()> {
        self.counters = Some(Counters::attach(&self.va_space()?, &self.driver_version()?)?);
        Ok(())
    }

    /// Attaches a queue of the driver's records.
    pub(crate) fn record_queue(&self, kinds: &[EventKind]) -> anyhow::Result<RecordQueue> {
        Ok(RecordQueue::attach(&self.va_space()?, &self.driver_version()?, kinds)?)
    }

    fn driver_version(&self) -> anyhow::Result<String> {
        sys::driver::module(&self.roots).and_then(|module| module.version).context(
            "the driver's version is unknown: neither /sys/module/nvidia_uvm nor /sys/module/nvidia contains it",
        )
    }

    /// VA space of the process. CUDA creates one; programs with several are not supported here.
    fn va_space(&self) -> anyhow::Result<VaSpace<'_>> {
        VaSpace::of(&self.process, &self.roots)?.into_iter().next().context("no VA space")
    }

    /// Counts since the attachment.
    pub(crate) fn counted(&self) -> Option<Counted> {
        self.counters.as_ref().map(Counters::read)
    }

    /// Waits for the exit of the process, at most this long; whether it has exited.
    pub(crate) fn wait_for_exit(&self, at_most: Duration) -> anyhow::Result<bool> {
        Ok(self.process.wait_for_exit(at_most)?)
    }

    /// Migrates memory in parts, on a new descriptor.
    pub(crate) fn migrate(&self, base: u64, length: u64, to: Uuid) -> anyhow::Result<()> {
        let parts = PageRange::parts(base, length, PART_BYTES).context("not a range of whole pages")?;
        let va_space = self.va_space()?;
        for part in parts {
            va_space.ask(Call::Migrate(part, to))?;
        }
        Ok(())
    }
}

/// Whether an error means that this machine does not permit the action, instead of a failure of the
/// action.
pub(crate) fn is_not_permitted(error: &anyhow::Error) -> bool {
    let process = |error: &PidFdError| matches!(error, PidFdError::NoCall(_) | PidFdError::NotPermitted(_));
    match error.downcast_ref::<UvmError>() {
        Some(UvmError::Process(error)) => process(error),
        Some(error) => {
            matches!(error, UvmError::Device { .. } | UvmError::UnknownVersion(_) | UvmError::Unreadable { .. })
        }
        None => error.downcast_ref::<PidFdError>().is_some_and(process),
    }
}

/// Managed memory of a process, as (address, bytes).
pub(crate) fn managed_ranges(pid: u32) -> anyhow::Result<Vec<(u64, u64)>> {
    let ranges = mapped::of(&Roots::default(), pid).with_context(|| format!("cannot read /proc/{pid}/maps"))?;
    Ok(ranges.into_iter().map(|range| (range.start, range.end - range.start)).collect())
}

#[cfg(test)]
mod tests {
    use sys::uvm::Status;

    use super::*;

    #[test]
    fn a_process_without_the_driver_is_an_error() {
        assert_eq!(managed_ranges(std::process::id()).unwrap(), []);
        let error = RemoteProcess::attach(std::process::id()).map(|_| ()).unwrap_err();
        assert!(!is_not_permitted(&error), "{error:#}");
    }

    #[test]
    fn missing_permissions_are_distinguished_from_failures() {
        assert!(is_not_permitted(&UvmError::from(PidFdError::NotPermitted(7)).into()));
        assert!(is_not_permitted(&PidFdError::NoCall("pidfd_open").into()));
        assert!(is_not_permitted(&UvmError::UnknownVersion("600".to_owned()).into()));
        let refused = UvmError::Refused { request: "UVM_MIGRATE", status: Status::INVALID_ADDRESS };
        assert!(!is_not_permitted(&refused.into()));
    }
}
