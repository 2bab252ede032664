//! Moving another process's memory from outside, and what that must cost.

use anyhow::{Context, bail, ensure};
use sys::{
    pidfd::PidFdError,
    uvm::{Uuid, UvmError, counters::Counted},
};
use workloads::report::{Header, PhaseReport};

use crate::{held, outside::Outside};

/// At rest before the GPU reads, everything is moved to it; at rest after, back. For a workload of `cpu-write` and `gpu-read`.
pub(crate) struct Mover {
    target: Option<Target>,
    /// What was counted when everything was on the GPU, before it read.
    before_read: Option<Counted>,
    /// Why the counters could not be attached; what follows is then not compared with them.
    pub(crate) no_counters: Option<anyhow::Error>,
    /// Steps that were right, in words.
    pub(crate) right: Vec<String>,
}

struct Target {
    outside: Outside,
    gpu: Uuid,
    address: u64,
    bytes: u64,
}

impl Mover {
    pub(crate) fn new() -> Self {
        Self { target: None, before_read: None, no_counters: None, right: Vec::new() }
    }

    /// After the process's end.
    pub(crate) fn finish(&mut self) -> anyhow::Result<()> {
        let Target { outside, gpu, address, bytes } = self.target.take().context("nothing was moved")?;
        let error =
            outside.migrate(address, bytes, gpu).err().context("memory of a process that has ended was moved")?;
        let is_gone = matches!(error.downcast_ref::<UvmError>(), Some(UvmError::Process(PidFdError::NoProcess(_))));
        ensure!(is_gone, "a process that has ended is not seen to have: {error:#}");
        self.right.push("refused once the process had ended".to_owned());
        Ok(())
    }

    /// Do something and hold what the driver counted for it against what it must have copied.
    fn costs(
        &mut self,
        what: &str,
        to_gpu: u64,
        to_host: u64,
        step: impl FnOnce(&Target) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let target = self.target.as_ref().context("the workload did not begin")?;
        let before = target.outside.counted();
        step(target)?;
        if let (Some(before), Some(after)) = (before, target.outside.counted()) {
            check(what, after.since(before), to_gpu, to_host)?;
        }
        self.right.push(what.to_owned());
        Ok(())
    }
}

fn check(what: &str, counted: Counted, to_gpu: u64, to_host: u64) -> anyhow::Result<()> {
    let Counted { fault_entries, bytes_htod, bytes_dtoh, cpu_faults: _ } = counted;
    if (fault_entries, bytes_htod, bytes_dtoh) != (0, to_gpu, to_host) {
        bail!(
            "{what}: the driver counted {fault_entries} GPU faults, {bytes_htod} bytes to the GPU and {bytes_dtoh} to the host; \
             it must be 0, {to_gpu} and {to_host}"
        );
    }
    Ok(())
}

impl held::Observer for Mover {
    fn begun(&mut self, header: &Header) -> anyhow::Result<()> {
        let mut outside = Outside::reach(header.pid)?;
        self.no_counters = outside.attach_counters().err();
        let gpu = header.gpu.uuid.parse()?;
        self.target = Some(Target { outside, gpu, address: header.address, bytes: header.bytes });
        self.right.push("descriptor taken with pidfd_getfd".to_owned());
        Ok(())
    }

    fn ready(&mut self, phase: &str) -> anyhow::Result<()> {
        if phase != "gpu-read" {
            return Ok(());
        }
        let bytes = self.target.as_ref().map_or(0, |target| target.bytes);
        self.costs("an address without managed memory refused", 0, 0, |target| {
            let error = target.outside.migrate(1 << 21, 1 << 21, target.gpu).err();
            let error = error.context("memory was moved where there is none")?;
            // NV_ERR_INVALID_ADDRESS; where the GPU may access all of the process's memory (HMM), what the kernel says of that address.
            let is_refused = matches!(error.downcast_ref::<UvmError>(), Some(UvmError::Refused { .. }));
            if is_refused { Ok(()) } else { Err(error) }
        })?;
        self.costs("moved to the GPU", bytes, 0, |target| target.outside.migrate(target.address, bytes, target.gpu))?;
        self.costs("moved to the GPU again, which copies nothing", 0, 0, |target| {
            target.outside.migrate(target.address, bytes, target.gpu)
        })?;
        self.costs("moved to the host and back", bytes, bytes, |target| {
            target.outside.migrate(target.address, bytes, Uuid::CPU)?;
            target.outside.migrate(target.address, bytes, target.gpu)
        })?;
        self.before_read = self.target.as_ref().and_then(|target| target.outside.counted());
        Ok(())
    }

    fn done(&mut self, report: &PhaseReport) -> anyhow::Result<()> {
        if report.phase != "gpu-read" {
            return Ok(());
        }
        let target = self.target.as_ref().context("the workload did not begin")?;
        let (bytes, after_read) = (target.bytes, target.outside.counted());
        let what = "read by the GPU without a fault or a copy";
        if let (Some(before), Some(after)) = (self.before_read, after_read) {
            check(what, after.since(before), 0, 0)?;
            self.right.push(what.to_owned());
        }
        self.costs("moved to the host after the GPU read it", 0, bytes, |target| {
            target.outside.migrate(target.address, bytes, Uuid::CPU)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_costs_its_bytes_and_no_faults() {
        let counted = Counted { fault_entries: 0, cpu_faults: 5, bytes_htod: 4096, bytes_dtoh: 0 };
        assert!(check("moved", counted, 4096, 0).is_ok());
        assert!(check("moved", counted, 0, 4096).is_err());
        let faulted = Counted { fault_entries: 1, ..counted };
        assert!(check("moved", faulted, 4096, 0).unwrap_err().to_string().contains("1 GPU faults"));
    }

    #[test]
    fn what_never_began_is_no_success() {
        assert_eq!(Mover::new().finish().unwrap_err().to_string(), "nothing was moved");
    }
}
