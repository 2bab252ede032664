//! `lab-runner builtin`: NVIDIA's own tests, which are part of the driver. They prove that the
//! driver's model of the hardware holds for the software GPU.

mod parameters;
mod tests;

use std::fmt;

use anyhow::Context;
use gpu::{swgpu::Gpu, uvm::VaSpace, words::Words};
use serde::Serialize;

use self::{
    parameters::{Item, Setting, lay_out},
    tests::{TESTS, Test},
};
use crate::{sys, truth::kmsg::Log};

/// Address of the managed memory of the tests: two blocks, far from all other mappings.
const MANAGED_AT: u64 = 0x10_0000_0000;
const MANAGED_BYTES: u64 = 4 << 20;
/// First word of each block.
const BLOCK_WORDS: [usize; 2] = [0, (2 << 20) / size_of::<u64>()];

/// Outcome of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Passed,
    Failed(String),
    /// Skipped, for this reason.
    Left(String),
}

#[derive(Serialize)]
struct Row {
    test: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    part: &'static str,
    outcome: Outcome,
}

/// Outcomes of all tests.
#[derive(Serialize)]
pub(crate) struct Report {
    arch: String,
    driver: String,
    kernel: String,
    verdict: &'static str,
    passed: usize,
    failed: usize,
    left: usize,
    tests: Vec<Row>,
}

impl Report {
    pub(crate) fn passed(&self) -> bool {
        self.failed == 0
    }
}

/// Runs every test that can run, one after the other, each on a driver whose GPU was just
/// registered.
pub(crate) fn run() -> anyhow::Result<Report> {
    let gpu = Gpu::open(0)?;
    let driver = crate::run::line_of("/sys/module/nvidia_uvm/version")?;
    let driver_major = driver.split('.').next().and_then(|major| major.parse().ok());
    let driver_major = driver_major.with_context(|| format!("the driver's version is {driver}"))?;
    let mut rows = Vec::new();
    for test in TESTS {
        // Printed before the test runs, so that the last name is that of a test that hangs in the
        // driver.
        eprint!("{:<30}{:<20}", test.name, test.part);
        let outcome = match test.unsupported {
            Some(reason) => Outcome::Left(reason.to_owned()),
            None => run_test(test, &gpu, driver_major)?,
        };
        eprintln!("{outcome}");
        rows.push(Row { test: test.name, part: test.part, outcome });
    }
    let count = |is_counted: fn(&Outcome) -> bool| rows.iter().filter(|row| is_counted(&row.outcome)).count();
    let failed = count(|outcome| matches!(outcome, Outcome::Failed(_)));
    Ok(Report {
        arch: gpu.arch.clone(),
        driver,
        kernel: crate::run::line_of("/proc/sys/kernel/osrelease")?,
        verdict: if failed == 0 { "pass" } else { "fail" },
        passed: count(|outcome| *outcome == Outcome::Passed),
        failed,
        left: count(|outcome| matches!(outcome, Outcome::Left(_))),
        tests: rows,
    })
}

fn run_test(test: &Test, gpu: &Gpu, driver_major: u32) -> anyhow::Result<Outcome> {
    let mut log = Log::from_now()?;
    let before = gpu.counters()?;
    let (result, status) = {
        let va_space = VaSpace::new([&gpu.uuid])?;
        let managed = Words::managed(&va_space, MANAGED_AT, MANAGED_BYTES)?;
        if test.items.iter().any(|item| matches!(item, Item::Managed)) {
            // The driver creates a block at its first touch.
            for word in BLOCK_WORDS {
                managed.write(word, 1);
            }
        }
        let mut range_groups = [0; 4];
        for group in &mut range_groups {
            *group = va_space.create_range_group()?;
        }
        let setting = Setting { driver_major, gpu: gpu.uuid, managed: MANAGED_AT, range_groups };
        let mut layout = lay_out(test.items, &setting);
        let result = sys::builtin::run_test(&va_space, test.number, &mut layout.parameters);
        managed.unmap()?;
        (result, layout.status())
    };
    // The VA space is closed: complaints of the driver about its teardown belong to the test, too.
    let after = gpu.counters()?;
    let mut problems = Vec::new();
    match result {
        Err(error) => problems.push(format!("the driver refused the request: {error}")),
        Ok(()) if status != 0 => problems.push(format!("status {status:#x} (nvstatuscodes.h)")),
        Ok(()) => {}
    }
    let errors = after.errors - before.errors;
    if errors != test.channel_errors {
        problems.push(format!("{errors} errors of channels, where the test makes {}", test.channel_errors));
    }
    let methods = after.unknown_methods - before.unknown_methods;
    if methods != 0 {
        problems.push(format!("{methods} methods that the software GPU does not know"));
    }
    let is_provoked = |line: &String| test.provoked_messages.iter().any(|part| line.contains(part));
    problems.extend(log.complaints()?.into_iter().filter(|line| !is_provoked(line)));
    Ok(if problems.is_empty() { Outcome::Passed } else { Outcome::Failed(problems.join("; ")) })
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Failed(reason) => write!(f, "FAILED: {reason}"),
            Self::Left(reason) => write!(f, "left out: {reason}"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { arch, driver, kernel, passed, failed, left, .. } = self;
        writeln!(f, "{arch}, driver {driver}, Linux {kernel}: {passed} passed, {failed} failed, {left} left out")
    }
}
