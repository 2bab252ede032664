//! What can be done to a running process from outside: its VA space taken, the driver's counters attached, its pages moved.

use std::time::Duration;

use anyhow::Context;
use sys::{
    Roots,
    pidfd::{PidFd, PidFdError},
    uvm::{
        Uuid, UvmError,
        call::Call,
        counters::{Counted, Counters},
        mapped,
        pages::PageRange,
        target::VaSpace,
    },
};

/// The driver's own blocks: no call holds the target up for longer than one takes.
const PART_BYTES: u64 = 2 << 20;

/// A process, reached from outside. Dropped before or right after the process ends, as what is attached keeps its VA space alive.
pub(crate) struct Outside {
    process: PidFd,
    roots: Roots,
    counters: Option<Counters>,
}

impl Outside {
    /// Take the process's VA space once, to see that it can be taken.
    pub(crate) fn reach(pid: u32) -> anyhow::Result<Self> {
        let reached = Self { process: PidFd::open(pid)?, roots: Roots::default(), counters: None };
        reached.va_space()?;
        Ok(reached)
    }

    /// The same, and attach the driver's counters.
    pub(crate) fn attach(pid: u32) -> anyhow::Result<Self> {
        let mut reached = Self::reach(pid)?;
        reached.attach_counters()?;
        Ok(reached)
    }

    pub(crate) fn attach_counters(&mut self) -> anyhow::Result<()> {
        let version = sys::driver::module(&self.roots).and_then(|module| module.version).context(
            "the driver's version is not known: neither /sys/module/nvidia_uvm nor /sys/module/nvidia tells it",
        )?;
        self.counters = Some(Counters::attach(&self.va_space()?, &version)?);
        Ok(())
    }

    /// CUDA makes one; a program that makes more is none of ours.
    fn va_space(&self) -> anyhow::Result<VaSpace<'_>> {
        VaSpace::of(&self.process, &self.roots)?.into_iter().next().context("no VA space")
    }

    /// What the counters counted since they were attached.
    pub(crate) fn counted(&self) -> Option<Counted> {
        self.counters.as_ref().map(Counters::read)
    }

    /// Wait for its end, at most so long. Says whether it has ended.
    pub(crate) fn wait_for_exit(&self, at_most: Duration) -> anyhow::Result<bool> {
        Ok(self.process.wait_for_exit(at_most)?)
    }

    /// Move memory in parts, on a descriptor taken for that.
    pub(crate) fn migrate(&self, base: u64, length: u64, to: Uuid) -> anyhow::Result<()> {
        let parts = PageRange::parts(base, length, PART_BYTES).context("not a range of whole pages")?;
        let va_space = self.va_space()?;
        for part in parts {
            va_space.ask(Call::Migrate(part, to))?;
        }
        Ok(())
    }
}

/// Whether this machine does not let one do it, so that nothing is wrong with how it was done.
pub(crate) fn is_out_of_reach(error: &anyhow::Error) -> bool {
    let process = |error: &PidFdError| matches!(error, PidFdError::NoCall(_) | PidFdError::NotPermitted(_));
    match error.downcast_ref::<UvmError>() {
        Some(UvmError::Process(error)) => process(error),
        Some(error) => {
            matches!(error, UvmError::Device { .. } | UvmError::UnknownVersion(_) | UvmError::Unreadable { .. })
        }
        None => error.downcast_ref::<PidFdError>().is_some_and(process),
    }
}

/// The managed memory of a process, as (address, bytes).
pub(crate) fn managed_ranges(pid: u32) -> anyhow::Result<Vec<(u64, u64)>> {
    let ranges = mapped::of(&Roots::default(), pid).with_context(|| format!("cannot read /proc/{pid}/maps"))?;
    Ok(ranges.into_iter().map(|range| (range.start, range.end - range.start)).collect())
}

#[cfg(test)]
mod tests {
    use sys::uvm::Status;

    use super::*;

    #[test]
    fn a_process_without_the_driver_says_so() {
        assert_eq!(managed_ranges(std::process::id()).unwrap(), []);
        let error = Outside::attach(std::process::id()).map(|_| ()).unwrap_err();
        assert!(!is_out_of_reach(&error), "{error:#}");
    }

    #[test]
    fn what_the_machine_does_not_let_one_do_is_told_from_what_goes_wrong() {
        assert!(is_out_of_reach(&UvmError::from(PidFdError::NotPermitted(7)).into()));
        assert!(is_out_of_reach(&PidFdError::NoCall("pidfd_open").into()));
        assert!(is_out_of_reach(&UvmError::UnknownVersion("600".to_owned()).into()));
        let refused = UvmError::Refused { request: "UVM_MIGRATE", status: Status::INVALID_ADDRESS };
        assert!(!is_out_of_reach(&refused.into()));
    }
}
