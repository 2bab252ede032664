//! Migration of another process's memory from outside, and its expected cost.

use anyhow::{Context, bail, ensure};
use sys::{
    pidfd::PidFdError,
    uvm::{Uuid, UvmError, counters::Counted},
};
use workloads::report::{Header, PhaseReport};

use crate::{remote::RemoteProcess, stepped};

/// Observer that migrates all memory to the GPU at the pause before the GPU reads, and back at the
/// pause after it. The workload has the phases `cpu-write` and `gpu-read`.
pub(crate) struct Migrator {
    target: Option<Target>,
    /// Counts before the read, with all memory on the GPU.
    before_read: Option<Counted>,
    /// Reason why the counters could not be attached; later steps are then not compared with them.
    pub(crate) counter_error: Option<anyhow::Error>,
    /// Descriptions of passed steps.
    pub(crate) passed: Vec<String>,
}

struct Target {
    process: RemoteProcess,
    gpu: Uuid,
    address: u64,
    bytes: u64,
}

impl Migrator {
    pub(crate) fn new() -> Self {
        Self { target: None, before_read: None, counter_error: None, passed: Vec::new() }
    }

    /// Checks after the process's exit that a migration is rejected.
    pub(crate) fn finish(&mut self) -> anyhow::Result<()> {
        let Target { process, gpu, address, bytes } = self.target.take().context("nothing was migrated")?;
        let error = process.migrate(address, bytes, gpu).err().context("memory of an exited process was migrated")?;
        let has_exited = matches!(error.downcast_ref::<UvmError>(), Some(UvmError::Process(PidFdError::NoProcess(_))));
        ensure!(has_exited, "unexpected error for an exited process: {error:#}");
        self.passed.push("rejected after the exit of the process".to_owned());
        Ok(())
    }

    /// Runs a step, and compares the driver's counts with the copies that it must have made.
    fn check_step(
        &mut self,
        name: &str,
        to_gpu: u64,
        to_host: u64,
        step: impl FnOnce(&Target) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let target = self.target.as_ref().context("the workload did not start")?;
        let before = target.process.counted();
        step(target)?;
        if let (Some(before), Some(after)) = (before, target.process.counted()) {
            check(name, after.since(before), to_gpu, to_host)?;
        }
        self.passed.push(name.to_owned());
        Ok(())
    }
}

fn check(name: &str, counted: Counted, to_gpu: u64, to_host: u64) -> anyhow::Result<()> {
    let Counted { fault_entries, bytes_htod, bytes_dtoh, cpu_faults: _ } = counted;
    if (fault_entries, bytes_htod, bytes_dtoh) != (0, to_gpu, to_host) {
        bail!(
            "{name}: the driver counted {fault_entries} GPU faults, {bytes_htod} bytes to the GPU and {bytes_dtoh} to the host; \
             expected 0, {to_gpu} and {to_host}"
        );
    }
    Ok(())
}

impl stepped::Observer for Migrator {
    fn begun(&mut self, header: &Header) -> anyhow::Result<()> {
        let mut process = RemoteProcess::open(header.pid)?;
        self.counter_error = process.attach_counters().err();
        let gpu = header.gpu.uuid.parse()?;
        self.target = Some(Target { process, gpu, address: header.address, bytes: header.bytes });
        self.passed.push("descriptor taken with pidfd_getfd".to_owned());
        Ok(())
    }

    fn ready(&mut self, phase: &str) -> anyhow::Result<()> {
        if phase != "gpu-read" {
            return Ok(());
        }
        let bytes = self.target.as_ref().map_or(0, |target| target.bytes);
        self.check_step("an address without managed memory is rejected", 0, 0, |target| {
            let error = target.process.migrate(1 << 21, 1 << 21, target.gpu).err();
            let error = error.context("migration of an address without memory succeeded")?;
            // The status is NV_ERR_INVALID_ADDRESS; if the GPU can access all of the process's
            // memory (HMM), it is the kernel's error for that address.
            let is_rejected = matches!(error.downcast_ref::<UvmError>(), Some(UvmError::Refused { .. }));
            if is_rejected { Ok(()) } else { Err(error) }
        })?;
        self.check_step("migrated to the GPU", bytes, 0, |target| {
            target.process.migrate(target.address, bytes, target.gpu)
        })?;
        self.check_step("migrated to the GPU again, without copies", 0, 0, |target| {
            target.process.migrate(target.address, bytes, target.gpu)
        })?;
        self.check_step("migrated to the host and back", bytes, bytes, |target| {
            target.process.migrate(target.address, bytes, Uuid::CPU)?;
            target.process.migrate(target.address, bytes, target.gpu)
        })?;
        self.before_read = self.target.as_ref().and_then(|target| target.process.counted());
        Ok(())
    }

    fn done(&mut self, report: &PhaseReport) -> anyhow::Result<()> {
        if report.phase != "gpu-read" {
            return Ok(());
        }
        let target = self.target.as_ref().context("the workload did not start")?;
        let (bytes, after_read) = (target.bytes, target.process.counted());
        let name = "read by the GPU without a fault or a copy";
        if let (Some(before), Some(after)) = (self.before_read, after_read) {
            check(name, after.since(before), 0, 0)?;
            self.passed.push(name.to_owned());
        }
        self.check_step("migrated to the host after the read", 0, bytes, |target| {
            target.process.migrate(target.address, bytes, Uuid::CPU)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_migration_costs_its_bytes_and_no_faults() {
        let counted = Counted { fault_entries: 0, cpu_faults: 5, bytes_htod: 4096, bytes_dtoh: 0 };
        assert!(check("moved", counted, 4096, 0).is_ok());
        assert!(check("moved", counted, 0, 4096).is_err());
        let faulted = Counted { fault_entries: 1, ..counted };
        assert!(check("moved", faulted, 4096, 0).unwrap_err().to_string().contains("1 GPU faults"));
    }

    #[test]
    fn a_check_that_never_began_is_no_success() {
        assert_eq!(Migrator::new().finish().unwrap_err().to_string(), "nothing was migrated");
    }
}
