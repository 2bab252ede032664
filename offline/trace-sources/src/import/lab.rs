//! Importer of logs of the lab's CUDA driver (`CUDA_LAB_LOG`, `lab/libcuda/README.md`): calls with
//! the addresses among their arguments, and, with `CUDA_LAB_LOG_ACCESSES=1`, the memory that they
//! accessed.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    path::Path,
};

use serde_json::Value;

use super::{
    error::{ImportError, Reason},
    text::{self, Lines},
};
use trace::{
    footprints::Extent,
    id::{BlockId, OpId},
    ops::{Argument, Block, Invalid, Launch, OpStream, Recorder, Signature},
};

/// Unit in which accesses are noted.
pub const PAGE_BYTES: u64 = 4 << 10;

/// Log of one program.
#[derive(Clone, Debug)]
pub struct LabLog {
    /// Calls, without memory of the host.
    pub stream: OpStream,
    /// Work with its accesses, in the order of execution.
    pub executed: Vec<Executed>,
    /// Work that was done when a block was freed.
    pub freed_after: HashMap<BlockId, usize>,
}

/// Work with what it accessed, by pages of 4 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executed {
    /// Operation of the stream.
    pub op: OpId,
    /// Memory that it read.
    pub read: Vec<Extent>,
    /// Memory that it wrote.
    pub written: Vec<Extent>,
    /// Addresses that it accessed in memory that no call allocated, such as variables of modules.
    pub elsewhere: Vec<Range<u64>>,
}

impl Executed {
    /// Bytes accessed in memory that no call allocated, in whole units of the address space. A unit
    /// counts once. Where such memory ends is not in the log, so that units are not cut there.
    #[must_use]
    pub fn elsewhere_bytes(&self, unit_bytes: u64) -> u64 {
        let unit_bytes = unit_bytes.max(1);
        let units = |run: &Range<u64>| run.start / unit_bytes..run.end.div_ceil(unit_bytes);
        let mut units: Vec<_> = self.elsewhere.iter().map(units).collect();
        units.sort_unstable_by_key(|units| units.start);
        let (mut count, mut behind) = (0_u64, 0);
        for units in units {
            count = count.saturating_add(units.end.saturating_sub(units.start.max(behind)));
            behind = units.end.max(behind);
        }
        count.saturating_mul(unit_bytes)
    }
}

/// Reads a log.
///
/// # Errors
/// If the file cannot be read, or is no such log: with the line.
pub fn load(path: &Path) -> Result<LabLog, ImportError> {
    let mut lines = Lines::new(path, text::open(path)?);
    let mut reader = Reader::default();
    while let Some(line) = lines.next()? {
        let line: Result<Value, _> = serde_json::from_str(line);
        let read = line.map_err(|error| Reason::Json(error.to_string())).and_then(|line| reader.read(&line));
        read.map_err(|reason| lines.error(reason))?;
    }
    let Reader { recorder, executed, freed_after, .. } = reader;
    Ok(LabLog { stream: recorder.finish(), executed, freed_after })
}

#[derive(Debug, Default)]
struct Reader {
    recorder: Recorder,
    /// Operations so far.
    ops: u32,
    /// Memory by its first address. Work that ends after the free of its block accesses that block:
    /// a block that was freed stays until another begins before it or where it does, and covers it.
    memory: BTreeMap<u64, Memory>,
    /// Operations by the line of their call, and the place among the nodes of a graph.
    by_call: HashMap<(u64, u64), OpId>,
    executed: Vec<Executed>,
    freed_after: HashMap<BlockId, usize>,
}

/// Memory that a call allocated.
#[derive(Clone, Copy, Debug)]
struct Memory {
    bytes: u64,
    /// Its block in the stream; none if it is memory of the host.
    block: Option<BlockId>,
}

fn number(line: &Value, field: &'static str) -> Result<u64, Reason> {
    let value = line.get(field).unwrap_or(&Value::Null);
    value.as_u64().ok_or_else(|| Reason::field(field, &value.to_string(), "a whole number"))
}

fn list<'a>(line: &'a Value, field: &str) -> &'a [Value] {
    line.get(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn dimensions(line: &Value, field: &str) -> [u32; 3] {
    let mut sizes = list(line, field).iter().filter_map(|size| u32::try_from(size.as_u64()?).ok());
    std::array::from_fn(|_| sizes.next().unwrap_or(0))
}

impl Reader {
    fn read(&mut self, line: &Value) -> Result<(), Reason> {
        let kind = line.get("op").and_then(Value::as_str).unwrap_or_default();
        let time_ns = number(line, "t_ns")?;
        match kind {
            "malloc" => self.malloc(line, time_ns)?,
            "free" => self.free(number(line, "address")?, time_ns)?,
            "context_destroy" => {
                let freed = list(line, "freed").iter().filter_map(Value::as_u64);
                freed.into_iter().try_for_each(|address| self.free(address, time_ns))?;
            }
            "launch" | "memcpy" | "memset" => self.work(line, kind, time_ns, (number(line, "seq")?, 0))?,
            "graph_launch" => {
                let call = number(line, "seq")?;
                for (place, node) in (0..).zip(list(line, "nodes")) {
                    let kind = node.get("op").and_then(Value::as_str).unwrap_or("launch");
                    if matches!(kind, "launch" | "memcpy" | "memset") {
                        self.work(node, kind, time_ns, (call, place))?;
                    }
                }
            }
            "access" => self.access(line)?,
            _ => {}
        }
        Ok(())
    }

    fn malloc(&mut self, line: &Value, time_ns: u64) -> Result<(), Reason> {
        let (address, bytes) = (number(line, "address")?, number(line, "bytes")?);
        let end = address.checked_add(bytes).ok_or(Invalid::BytesOverflow)?;
        if bytes == 0 {
            return Ok(());
        }
        let block = if line.get("kind").and_then(Value::as_str) == Some("host") {
            None
        } else {
            let block = self.recorder.malloc(time_ns, address, Block { bytes, address: Some(address) })?;
            self.ops += 1;
            Some(block)
        };
        // What began here was freed before, and no address of the new memory is in it any more.
        while let Some((&begin, _)) = self.memory.range(address..end).next() {
            self.memory.remove(&begin);
        }
        self.memory.insert(address, Memory { bytes, block });
        Ok(())
    }

    fn free(&mut self, address: u64, time_ns: u64) -> Result<(), Reason> {
        if self.recorder.block(address).is_ok() {
            let block = self.recorder.free(time_ns, address)?;
            self.ops += 1;
            self.freed_after.insert(block, self.executed.len());
        } else if self.memory.get(&address).is_some_and(|memory| memory.block.is_none()) {
            self.memory.remove(&address);
        }
        Ok(())
    }

    /// Memory that an address is in, with the offset.
    fn find(&self, address: u64) -> Option<(Memory, u64)> {
        let (begin, memory) = self.memory.range(..=address).next_back()?;
        let offset = address - begin;
        (offset < memory.bytes).then_some((*memory, offset))
    }

    /// Argument of a launch, if the address is in a block that is live.
    fn argument(&self, address: u64, bytes: Option<u64>) -> Option<Argument> {
        let (memory, offset) = self.find(address)?;
        let block = memory.block?;
        let is_live = self.recorder.block(address - offset) == Ok(block);
        is_live.then_some(Argument { offset_bytes: Some(offset), bytes, ..Argument::of(block) })
    }

    fn work(&mut self, line: &Value, kind: &str, time_ns: u64, call: (u64, u64)) -> Result<(), Reason> {
        // Of rows with gaps, where they end is not in the log.
        let is_whole = line.get("rows").and_then(Value::as_u64).is_none_or(|rows| rows <= 1);
        let bytes = || Ok::<_, Reason>(Some(number(line, "bytes")?).filter(|_| is_whole));
        let named = match kind {
            "memcpy" => vec![(number(line, "to")?, bytes()?), (number(line, "from")?, bytes()?)],
            "memset" => vec![(number(line, "address")?, bytes()?)],
            _ => {
                let address = |pointer: &Value| {
                    let address = number(pointer, "base")?.checked_add(number(pointer, "offset")?);
                    address.map(|address| (address, None)).ok_or(Reason::Ops(Invalid::BytesOverflow))
                };
                list(line, "pointers").iter().map(address).collect::<Result<_, _>>()?
            }
        };
        let mut arguments: Vec<Argument> = Vec::new();
        for argument in named.into_iter().filter_map(|(address, bytes)| self.argument(address, bytes)) {
            if !arguments.contains(&argument) {
                arguments.push(argument);
            }
        }
        let name = line.get("kernel").and_then(Value::as_str).unwrap_or(kind).to_owned();
        let (grid, block) = (dimensions(line, "grid"), dimensions(line, "block"));
        let signature = self.recorder.signature(Signature { name, grid, block });
        let launch = Launch { signature, stream: 0, start_ns: None, duration_ns: None, arguments };
        self.recorder.launch(time_ns, launch)?;
        self.by_call.insert(call, OpId(self.ops));
        self.ops += 1;
        Ok(())
    }

    fn access(&mut self, line: &Value) -> Result<(), Reason> {
        let place = line.get("node").and_then(Value::as_u64).unwrap_or(0);
        let call = number(line, "of")?;
        let unknown = || Reason::field("of", &call.to_string(), "the number of a line before");
        let op = *self.by_call.get(&(call, place)).ok_or_else(unknown)?;
        let mut elsewhere = Vec::new();
        let mut extents = |field: &'static str| -> Result<Vec<Extent>, Reason> {
            let mut extents = Vec::new();
            for run in list(line, field) {
                let run: [u64; 2] =
                    serde_json::from_value(run.clone()).map_err(|error| Reason::Json(error.to_string()))?;
                let [address, bytes] = run;
                match self.find(address) {
                    Some((Memory { bytes: block_bytes, block: Some(block) }, begin)) => {
                        extents.push(Extent { block, begin, end: begin.saturating_add(bytes).min(block_bytes) });
                    }
                    // Memory of the host.
                    Some(_) => {}
                    None => elsewhere.push(address..address.saturating_add(bytes)),
                }
            }
            Ok(extents)
        };
        let (read, written) = (extents("read")?, extents("written")?);
        self.executed.push(Executed { op, read, written, elsewhere });
        Ok(())
    }
}
