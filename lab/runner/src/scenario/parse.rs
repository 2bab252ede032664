//! Parser from TOML to a [`Scenario`]. All errors of a file are found before anything runs, and
//! reported with file, line, column and reason.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    time::Duration,
};

use super::{
    Allocation, Process, Scenario, Scope, Target, Variation, WORD_BYTES,
    size::{Bytes, MIB},
    steps,
    table::{Fault, Table},
};

/// Error of a scenario file, with its position.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {reason}")]
pub(crate) struct ScenarioError {
    file: String,
    line: usize,
    column: usize,
    reason: String,
}

const DEFAULT_GPU_MEM_MIB: u64 = 64;
/// Maximum of GPUs: the slots of the lab's machine.
const MAX_GPUS: u32 = 2;
const MAX_PROCESSES: usize = 64;
/// Maximum size of an allocation. No machine that runs the lab has more memory, and sums of smaller
/// sizes cannot overflow.
const MAX_ALLOCATION_BYTES: u64 = 1 << 40;

/// Read and check a scenario file.
pub(crate) fn load(path: &Path) -> Result<Scenario, ScenarioError> {
    load_varied(path, Variation::default())
}

/// Read and check a scenario file for a run with a variation.
pub(crate) fn load_varied(path: &Path, variation: Variation) -> Result<Scenario, ScenarioError> {
    let file = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|error| ScenarioError {
        file: file.clone(),
        line: 1,
        column: 1,
        reason: format!("cannot be read: {error}"),
    })?;
    parse_varied(&file, &text, variation)
}

/// Check a scenario; error messages name `file`.
pub(crate) fn parse(file: &str, text: &str) -> Result<Scenario, ScenarioError> {
    parse_varied(file, text, Variation::default())
}

/// Check a scenario for a run with a variation.
pub(crate) fn parse_varied(file: &str, text: &str, variation: Variation) -> Result<Scenario, ScenarioError> {
    Table::parse(text).and_then(|table| scenario(table, text, variation)).map_err(|Fault { span, subject, reason }| {
        let before = text.get(..span.map_or(0, |span| span.start)).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        ScenarioError {
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before.get(line_start..).map_or(0, |line| line.chars().count()) + 1,
            reason: subject.unwrap_or_default() + &reason,
        }
    })
}

fn scenario(mut table: Table<'_>, text: &str, variation: Variation) -> Result<Scenario, Fault> {
    let name = label("the scenario", table.need("name")?)?;
    // Only for readers and `scripts/lab list`.
    table.take::<String>("description")?;
    let gpu_mem_mib = table.take("gpu_mem_mib")?.unwrap_or(DEFAULT_GPU_MEM_MIB);
    // Frames of the software GPU have 2 MiB.
    if !(4..=16384).contains(&gpu_mem_mib) || gpu_mem_mib % 2 != 0 {
        let reason = format!("gpu_mem_mib = {gpu_mem_mib}: must be an even number from 4 to 16384");
        return Err(table.fault("gpu_mem_mib", reason));
    }
    let gpu_count = table.take("gpus")?.unwrap_or(1);
    if !(1..=MAX_GPUS).contains(&gpu_count) {
        return Err(table.fault("gpus", format!("gpus = {gpu_count}: must be from 1 to {MAX_GPUS}")));
    }
    let nvlink = table.take("nvlink")?.unwrap_or(false);
    let driver_parameters: BTreeMap<String, u64> = table.take("driver_parameters")?.unwrap_or_default();
    if let Some(name) = driver_parameters.keys().find(|name| !is_parameter(name)) {
        let reason = format!("driver_parameters: {name:?} cannot be the name of a module parameter");
        return Err(table.fault("driver_parameters", reason));
    }
    let tables = table.tables("process")?;
    if tables.is_empty() || tables.len() > MAX_PROCESSES {
        return Err(format!("{} processes: a scenario has from 1 to {MAX_PROCESSES} [[process]]", tables.len()).into());
    }
    let mut names = BTreeSet::new();
    let mut processes = Vec::new();
    for table in tables {
        let span = table.span();
        let process = process(table, gpu_count, variation).map_err(|fault| fault.within(&span, String::new))?;
        if !names.insert(process.name.clone()) {
            return Err(
                Fault::from(format!("there are two processes named {:?}", process.name)).within(&span, String::new)
            );
        }
        processes.push(process);
    }
    let mut targets = Vec::new();
    for table in table.tables("target")? {
        let span = table.span();
        let names: Vec<&str> = processes.iter().map(|process: &Process| process.name.as_str()).collect();
        targets.push(Target::take(table, &names).map_err(|fault| fault.within(&span, String::new))?);
    }
    table.finish("a scenario")?;
    let text = text.to_owned();
    Ok(Scenario { name, gpu_mem_mib, gpu_count, nvlink, driver_parameters, processes, targets, variation, text })
}

/// Whether a name is valid for a module parameter. The name becomes a word of a command line.
fn is_parameter(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte == b'_' || byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

fn process(mut table: Table<'_>, gpu_count: u32, variation: Variation) -> Result<Process, Fault> {
    let name = label("a process", table.need("name")?)?;
    let subject = || format!("process {name:?}: ");
    let mut allocations: Vec<Allocation> = Vec::new();
    for table in table.tables("alloc")? {
        let span = table.span();
        let allocation = allocation(&name, table).map_err(|fault| fault.within(&span, String::new))?;
        if allocations.iter().any(|other| other.name == allocation.name) {
            let reason = format!("there are two allocations named {:?}", allocation.name);
            return Err(Fault::from(reason).within(&span, subject));
        }
        allocations.push(allocation);
    }
    let gpus: Vec<u32> = table.take("gpus")?.unwrap_or_else(|| (0..gpu_count).collect());
    let distinct: BTreeSet<&u32> = gpus.iter().collect();
    if gpus.is_empty() || distinct.len() != gpus.len() || gpus.iter().any(|gpu| *gpu >= gpu_count) {
        let reason = format!("gpus = {gpus:?}: must be different numbers below {gpu_count}, the scenario's gpus");
        return Err(table.fault("gpus", reason).within(&table.span(), subject));
    }
    let memory_limit_bytes = table.take::<Bytes>("memory_limit")?.map(|limit| limit.0);
    let milliseconds = |count: Option<u32>| count.map(|count| Duration::from_millis(count.into()));
    let start_after = milliseconds(table.take("start_after_ms")?).unwrap_or_default();
    let kill_after = milliseconds(table.take("kill_after_ms")?);
    let scope =
        Scope { process: &name, allocations: &allocations, gpus: &gpus, prefix: String::new(), depth: 0, variation };
    let steps = steps::parse_list(table.tables("steps")?, &scope)?;
    let span = table.span();
    table.finish("a process").map_err(|fault| fault.within(&span, subject))?;
    let delay = variation.delay(&name);
    Ok(Process { name, allocations, gpus, start_after, kill_after, memory_limit_bytes, steps, delay })
}

/// Check a name, which appears in tables and in the process list.
fn label(of: &str, name: String) -> Result<String, Fault> {
    if name.trim().is_empty() || name.len() > 64 || name.chars().any(char::is_control) {
        return Err(format!("{name:?} cannot be the name of {of}: must be 1 to 64 printable bytes").into());
    }
    Ok(name)
}

fn allocation(process: &str, mut table: Table<'_>) -> Result<Allocation, Fault> {
    let name = label("an allocation", table.need("name")?)?;
    let subject = || format!("process {process:?}, allocation {name:?}: ");
    let span = table.span();
    let scaled = |count: Option<u64>, scale: u64| count.map(|count| count.saturating_mul(scale));
    let sizes = [
        table.take::<Bytes>("size")?.map(|size| size.0),
        scaled(table.take("mib")?, MIB),
        scaled(table.take("kib")?, 1024),
        table.take("bytes")?,
    ];
    let sizes: Vec<u64> = sizes.into_iter().flatten().collect();
    let bytes = match sizes.as_slice() {
        [0] => Err("is empty".to_owned()),
        [bytes] if *bytes > MAX_ALLOCATION_BYTES => Err("is larger than 1 TiB".to_owned()),
        [bytes] if bytes % WORD_BYTES != 0 => Err(format!("{bytes} bytes is not a multiple of {WORD_BYTES}")),
        [bytes] => Ok(*bytes),
        _ => Err(format!("give one of size, mib, kib and bytes, not {}", sizes.len())),
    };
    let bytes = bytes.map_err(|reason| Fault::from(reason).within(&span, subject))?;
    table.finish("an allocation").map_err(|fault| fault.within(&span, subject))?;
    Ok(Allocation { name, bytes })
}

#[cfg(test)]
mod tests;
