//! TOML to a [`Scenario`]. Whatever is wrong with a file is found here, before anything runs, and said with file, line, column and reason.

use std::{collections::BTreeSet, fs, ops::Range, path::Path};

use toml::Spanned;

use super::{Access, Allocation, Kind, Order, Process, Processor, Scenario, Step, WORD_BYTES, raw, size::MIB};

/// What is wrong with a scenario file, and where.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {reason}")]
pub(crate) struct ScenarioError {
    file: String,
    line: usize,
    column: usize,
    reason: String,
}

/// Accesses of a GPU step that may wait on a fault at a time, unless the step says. The driver takes up to 256 faults in a batch.
const DEFAULT_WINDOW: u32 = 256;
const MAX_WINDOW: u32 = 4096;
/// Four words a page, unless a step says: several faults of a pass then fall on one page, as with the threads of a warp.
const DEFAULT_STRIDE_BYTES: u64 = 1024;
const DEFAULT_GPU_MEM_MIB: u64 = 64;
const MAX_PROCESSES: usize = 64;
/// No machine that runs the lab has more, and sums of what is smaller cannot overflow.
const MAX_ALLOCATION_BYTES: u64 = 1 << 40;
/// Deeper nesting is a mistake.
const MAX_DEPTH: usize = 16;

/// Read and check a scenario file.
pub(crate) fn load(path: &Path) -> Result<Scenario, ScenarioError> {
    let file = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|error| ScenarioError {
        file: file.clone(),
        line: 1,
        column: 1,
        reason: format!("cannot be read: {error}"),
    })?;
    parse(&file, &text)
}

/// Check a scenario; `file` is for messages.
pub(crate) fn parse(file: &str, text: &str) -> Result<Scenario, ScenarioError> {
    let at = |Fault { span, reason }: Fault| {
        let before = text.get(..span.start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        ScenarioError {
            file: file.to_owned(),
            line: before.matches('\n').count() + 1,
            column: before.chars().count() - before.get(..line_start).map_or(0, |lines| lines.chars().count()) + 1,
            reason,
        }
    };
    let raw: raw::Scenario = toml::from_str(text).map_err(|error| {
        at(Fault { span: error.span().unwrap_or(0..0), reason: error.message().replace('\n', "; ") })
    })?;
    scenario(raw).map_err(at)
}

/// What is wrong, and which bytes of the file it is about.
struct Fault {
    span: Range<usize>,
    reason: String,
}

fn fault<T>(span: Range<usize>, reason: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { span, reason: reason.into() })
}

fn scenario(raw: raw::Scenario) -> Result<Scenario, Fault> {
    let raw::Scenario { name, description, gpu_mem_mib, process } = raw;
    let name = label("the scenario", &name)?;
    let gpu_mem_mib = match gpu_mem_mib {
        None => DEFAULT_GPU_MEM_MIB,
        // The software GPU's frames are of 2 MiB.
        Some(mib) if (4..=16384).contains(mib.get_ref()) && mib.get_ref() % 2 == 0 => mib.into_inner(),
        Some(mib) => {
            return fault(
                mib.span(),
                format!("gpu_mem_mib = {}: must be an even number from 4 to 16384", mib.get_ref()),
            );
        }
    };
    if process.is_empty() || process.len() > MAX_PROCESSES {
        return fault(
            0..0,
            format!("{} processes: a scenario has from 1 to {MAX_PROCESSES} [[process]]", process.len()),
        );
    }
    let mut names = BTreeSet::new();
    let mut processes = Vec::new();
    for raw in process {
        let name_span = raw.get_ref().name.span();
        let process = self::process(raw.into_inner())?;
        if !names.insert(process.name.clone()) {
            return fault(name_span, format!("there are two processes named {:?}", process.name));
        }
        processes.push(process);
    }
    Ok(Scenario { name, description: description.unwrap_or_default(), gpu_mem_mib, processes })
}

fn process(raw: raw::Process) -> Result<Process, Fault> {
    let raw::Process { name: raw_name, alloc, steps } = raw;
    let name = label("a process", &raw_name)?;
    let mut allocations: Vec<Allocation> = Vec::new();
    for raw in alloc {
        let span = raw.span();
        let allocation = allocation(&name, raw)?;
        if allocations.iter().any(|other| other.name == allocation.name) {
            return fault(span, format!("process {name:?}: there are two allocations named {:?}", allocation.name));
        }
        allocations.push(allocation);
    }
    let context = Context { process: &name, allocations: &allocations };
    let steps = context.steps(steps, "", 0)?;
    Ok(Process { name, allocations, steps })
}

/// A name that is shown in tables and in the process list.
fn label(of: &str, name: &Spanned<String>) -> Result<String, Fault> {
    let text = name.get_ref();
    if text.trim().is_empty() || text.len() > 64 || text.chars().any(char::is_control) {
        return fault(name.span(), format!("{text:?} cannot be the name of {of}: 1 to 64 printable bytes can"));
    }
    Ok(text.clone())
}

fn allocation(process: &str, raw: Spanned<raw::Allocation>) -> Result<Allocation, Fault> {
    let span = raw.span();
    let raw::Allocation { name: raw_name, size, mib, kib, bytes } = raw.into_inner();
    let name = label("an allocation", &raw_name)?;
    let about = format!("process {process:?}, allocation {name:?}");
    let scaled = |count: Option<u64>, scale: u64| count.map(|count| count.saturating_mul(scale));
    let given = [size.map(|size| size.0), scaled(mib, MIB), scaled(kib, 1024), bytes];
    let given: Vec<u64> = given.into_iter().flatten().collect();
    let [bytes] = given.as_slice() else {
        return fault(span, format!("{about}: give one of size, mib, kib and bytes, not {}", given.len()));
    };
    match *bytes {
        0 => fault(span, format!("{about}: is empty")),
        bytes if bytes > MAX_ALLOCATION_BYTES => fault(span, format!("{about}: is larger than 1 TiB")),
        bytes if bytes % WORD_BYTES != 0 => {
            fault(span, format!("{about}: {bytes} bytes is not a multiple of {WORD_BYTES}"))
        }
        bytes => Ok(Allocation { name, bytes }),
    }
}

/// What a step may refer to.
struct Context<'a> {
    process: &'a str,
    allocations: &'a [Allocation],
}

impl Context<'_> {
    /// `prefix` is the number of the enclosing repeat with a dot: step 2.1 is the first of step 2.
    fn steps(&self, raw: Vec<Spanned<raw::Step>>, prefix: &str, depth: usize) -> Result<Vec<Step>, Fault> {
        let mut steps = Vec::new();
        for (at, raw) in raw.into_iter().enumerate() {
            let span = raw.span();
            let number = format!("{prefix}{}", at + 1);
            let about = |reason: String| Fault {
                span: span.clone(),
                reason: format!("process {:?}, step {number}: {reason}", self.process),
            };
            if matches!(steps.last(), Some(Step::Exit { .. })) {
                return Err(about("is never reached: the step before it ends the process".to_owned()));
            }
            if depth == MAX_DEPTH {
                return Err(about(format!("is nested more than {MAX_DEPTH} deep")));
            }
            let raw = raw.into_inner();
            let action = raw.action().map_err(about)?;
            let step = match action {
                raw::Action::Access(by, kind, allocation) => self.access(&raw, by, kind, allocation).map(Step::Access),
                raw::Action::Verify(allocation) => {
                    self.allocation(allocation).map(|(allocation, _)| Step::Verify { allocation })
                }
                raw::Action::Sleep(milliseconds) => Ok(Step::Sleep { milliseconds }),
                raw::Action::Exit(code) => Ok(Step::Exit { code }),
                raw::Action::Repeat(times) => {
                    let times = u32::try_from(times).ok().filter(|times| *times > 0);
                    let times = times.ok_or_else(|| about("repeat must be from 1 to 4294967295".to_owned()))?;
                    let nested = raw.steps.unwrap_or_default();
                    if nested.is_empty() {
                        return Err(about("repeat needs steps = [...] with at least one step".to_owned()));
                    }
                    Ok(Step::Repeat { times, steps: self.steps(nested, &format!("{number}."), depth + 1)? })
                }
            };
            steps.push(step.map_err(about)?);
        }
        Ok(steps)
    }

    fn allocation(&self, name: &str) -> Result<(usize, &Allocation), String> {
        let found = self.allocations.iter().enumerate().find(|(_, allocation)| allocation.name == name);
        found.ok_or_else(|| format!("no allocation is named {name:?}"))
    }

    fn access(&self, raw: &raw::Step, by: raw::By, kind: Kind, allocation: &str) -> Result<Access, String> {
        let (at, allocation) = self.allocation(allocation)?;
        let words = |what: &str, bytes: u64| match bytes % WORD_BYTES {
            0 => Ok(bytes),
            _ => Err(format!("{what} = {bytes}: must be a multiple of {WORD_BYTES}, the size of an access")),
        };
        let offset_bytes = words("offset", raw.offset.map_or(0, |offset| offset.0))?;
        let rest_bytes = allocation.bytes.saturating_sub(offset_bytes);
        let length_bytes = words("length", raw.length.map_or(rest_bytes, |length| length.0))?;
        if offset_bytes >= allocation.bytes || length_bytes > rest_bytes {
            return Err(format!(
                "offset {offset_bytes} and length {length_bytes} are outside of {:?}, which has {} bytes",
                allocation.name, allocation.bytes
            ));
        }
        if length_bytes == 0 {
            return Err("length = 0: there is nothing to access".to_owned());
        }
        let stride_bytes = words("stride", raw.stride.map_or(DEFAULT_STRIDE_BYTES, |stride| stride.0))?;
        if stride_bytes == 0 {
            return Err("stride = 0: would access one word for ever".to_owned());
        }
        let order = match raw.order {
            None | Some(raw::Order::Sequential) => Order::Sequential,
            Some(raw::Order::Random) => Order::Random { seed: raw.seed.unwrap_or(1) },
        };
        let by = match (by, raw.window) {
            (raw::By::Cpu, None) => Processor::Cpu,
            (raw::By::Cpu, Some(_)) => return Err("window is for the GPU; a CPU waits on each fault".to_owned()),
            (raw::By::Gpu, window) => {
                let window = u32::try_from(window.unwrap_or(DEFAULT_WINDOW.into())).unwrap_or(u32::MAX);
                if !(1..=MAX_WINDOW).contains(&window) {
                    return Err(format!("window must be from 1 to {MAX_WINDOW}"));
                }
                Processor::Gpu { window }
            }
        };
        Ok(Access { by, kind, allocation: at, offset_bytes, length_bytes, stride_bytes, order })
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
