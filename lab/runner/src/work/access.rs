//! One pass over part of an allocation, word by word.

use gpu::swgpu::{GpuAccess, Kernel, MAX_ACCESSES};

use super::{Reader, Work};
use crate::scenario::{
    WORD_BYTES,
    steps::{
        Execution, Flow,
        access::{Access, Kind, Processor},
    },
};

/// CPU accesses between two checks whether to stop.
const CPU_ACCESSES_AT_ONCE: u64 = 1 << 14;

/// Makes all accesses, until it is stopped.
pub(super) fn run(access: &Access, work: &Work<'_>) -> anyhow::Result<Flow> {
    match access.by {
        Processor::Cpu => work.by_cpu(access.part, access.kind, || by_cpu(access, work)),
        Processor::Gpu { gpu, window, access_millibytes } => {
            by_gpu(access, work, &Kernel { gpu, kind: access.kind, window, access_millibytes })
        }
    }
}

fn by_cpu(access: &Access, work: &Work<'_>) -> anyhow::Result<Flow> {
    let allocation = access.part.allocation;
    let write = work.next_write(access.kind);
    for (done, at) in (1_u64..).zip(access.words()) {
        let at = usize::try_from(at)?;
        match access.kind {
            Kind::Read => work.compare(allocation, at, work.machine.cpu_read(allocation, at), Reader::Cpu),
            Kind::Write => {
                let value = work.new_value(allocation, at, write);
                work.machine.cpu_write(allocation, at, value);
                work.record_write(allocation, at, value);
            }
            Kind::Atomic => {
                let addend = work.new_value(allocation, at, write);
                let before = work.machine.cpu_add(allocation, at, addend);
                work.record_add(allocation, at, addend, before, Reader::Cpu);
            }
        }
        if done % CPU_ACCESSES_AT_ONCE == 0 && work.is_stopped() {
            return Ok(Flow::Stopped);
        }
    }
    Ok(Flow::Done)
}

fn by_gpu(access: &Access, work: &Work<'_>, kernel: &Kernel) -> anyhow::Result<Flow> {
    let allocation = access.part.allocation;
    let base = work.machine.address(allocation);
    let write = work.next_write(access.kind);
    work.count_kernel();
    let mut words = access.words();
    let mut part = Vec::with_capacity(MAX_ACCESSES.min(usize::try_from(access.count())?));
    let mut addends = Vec::new();
    loop {
        part.clear();
        for word in words.by_ref().take(MAX_ACCESSES) {
            let value = match access.kind {
                Kind::Read => 0,
                Kind::Write | Kind::Atomic => work.new_value(allocation, usize::try_from(word)?, write),
            };
            part.push(GpuAccess { va: base + word * WORD_BYTES, value });
        }
        if part.is_empty() {
            return Ok(Flow::Done);
        }
        addends.clear();
        addends.extend(part.iter().map(|each| each.value));
        work.machine.gpu_run(kernel, &mut part)?;
        for (GpuAccess { va, value }, addend) in part.iter().zip(&addends) {
            let at = usize::try_from((va - base) / WORD_BYTES)?;
            match access.kind {
                Kind::Read => work.compare(allocation, at, *value, Reader::Gpu),
                Kind::Write => work.record_write(allocation, at, *value),
                Kind::Atomic => work.record_add(allocation, at, *addend, *value, Reader::Gpu),
            }
        }
        if work.is_stopped() {
            return Ok(Flow::Stopped);
        }
    }
}
