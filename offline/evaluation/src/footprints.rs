//! Footprints that are inferred from the arguments of launches, beside the memory that the lab's
//! CUDA driver saw accessed; and the bound of bytes over the link.

use std::{ops::Range, path::PathBuf, str::FromStr};

use sim::traffic::{Accesses, Copies, Operands, least};
use trace::{
    Footprints, OpId,
    footprints::{Coverage, Until, rounded},
    id::Id,
};
use trace_sources::import::lab::{self, LabLog, PAGE_BYTES};

use crate::Result;

const BLOCK_BYTES: u64 = 2 << 20;
const MIB: u64 = 1 << 20;

/// Log of the lab's CUDA, and the name of its program.
#[derive(Clone)]
pub(crate) struct NamedLog {
    name: String,
    path: PathBuf,
}

impl FromStr for NamedLog {
    type Err = &'static str;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        let (name, path) = text.split_once('=').ok_or("expected NAME=LOG")?;
        Ok(Self { name: name.to_owned(), path: path.into() })
    }
}

pub(crate) fn print(logs: &[NamedLog]) -> Result {
    let load = |NamedLog { name, path }: &NamedLog| -> Result<_> { Ok((name.clone(), lab::load(path)?)) };
    let logs = logs.iter().map(load).collect::<Result<Vec<_>>>()?;
    println!(
        "| program | operations | extents end at | precision, bytes | recall, bytes | precision, 2 MiB | recall, 2 MiB |"
    );
    println!("| --- | ---: | --- | ---: | ---: | ---: | ---: |");
    for (name, log) in &logs {
        let whole = OpId(0)..OpId::new(log.stream.ops().len());
        let parts = [(String::new(), Some(whole)), (", last iteration".to_owned(), last_iteration(log))];
        for (part, ops) in parts {
            let Some(ops) = ops else { continue };
            for (rule, until) in [("the next address", Until::NextNamed), ("the next in use", Until::NextInUse)] {
                let footprints = Footprints::of(&log.stream, ops.clone(), until);
                let (count, bytes) = coverage(log, &footprints, PAGE_BYTES);
                let (_, blocks) = coverage(log, &footprints, BLOCK_BYTES);
                let percent = |share: f64| format!("{:.1} %", share * 100.0);
                println!(
                    "| `{name}`{part} | {count} | {rule} | {} | {} | {} | {} |",
                    percent(bytes.precision()),
                    percent(bytes.recall()),
                    percent(blocks.precision()),
                    percent(blocks.recall())
                );
            }
        }
    }
    println!(
        "\n| program | memory in use | GPU memory | bound to the GPU | bound from the GPU | in blocks: to | from |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    for (name, log) in &logs {
        let (pages, blocks) = (Accesses::of_log(log, PAGE_BYTES), Accesses::of_log(log, BLOCK_BYTES));
        let used_bytes = pages.items.iter().map(|item| item.size).sum::<u64>() * PAGE_BYTES;
        for quarters in [3, 2, 1] {
            let room = quarters * used_bytes / 4 / PAGE_BYTES;
            let bound = |accesses| {
                let traffic = least(accesses, room, Copies::All, Operands::Streamed);
                let mib = |pages: u64| format!("{:.1} MiB", (pages * PAGE_BYTES) as f64 / MIB as f64);
                format!("{} | {}", mib(traffic.to_gpu), mib(traffic.from_gpu))
            };
            let (used, gpu) = (used_bytes as f64 / MIB as f64, (room * PAGE_BYTES) as f64 / MIB as f64);
            println!("| `{name}` | {used:.1} MiB | {gpu:.1} MiB | {} | {} |", bound(&pages), bound(&blocks));
        }
    }
    Ok(())
}

/// Operations that have accesses in the log, and their footprints beside these, both in whole units.
fn coverage(log: &LabLog, footprints: &Footprints, unit_bytes: u64) -> (usize, Coverage) {
    let (mut coverage, mut count) = (Coverage::default(), 0);
    for executed in log.executed.iter().filter(|executed| footprints.ops().contains(&executed.op.index())) {
        let accessed: Vec<_> = executed.read.iter().chain(&executed.written).copied().collect();
        let named = rounded(&log.stream, footprints.op(executed.op), unit_bytes);
        coverage.add(&named, &rounded(&log.stream, &accessed, unit_bytes), executed.elsewhere_bytes(unit_bytes));
        count += 1;
    }
    (count, coverage)
}

/// Operations from behind the last copy to the host but one, to the last: of a training, these read
/// the loss.
fn last_iteration(log: &LabLog) -> Option<Range<OpId>> {
    let name = |op: OpId| match log.stream.ops()[op].kind {
        trace::OpKind::Launch(launch) => Some(&log.stream.signatures()[log.stream.launches()[launch].signature].name),
        _ => None,
    };
    let copies = log.executed.iter().filter(|executed| {
        name(executed.op).is_some_and(|name| name == "memcpy")
            && executed.written.is_empty()
            && !executed.read.is_empty()
    });
    let mut last = copies.rev().map(|executed| executed.op.index() + 1);
    let end = last.next()?;
    let begin = last.find(|begin| end - begin > 1)?;
    Some(OpId::new(begin)..OpId::new(end))
}
