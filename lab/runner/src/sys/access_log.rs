//! Software GPU's log of accesses, copies and mappings. Layouts as in `lab/swgpu/swgpu_ioctl.h`.

use std::{fs::File, io::Read};

use anyhow::{Context, bail};
use gpu::{
    Request, ioctl, open,
    swgpu::{Gpu, kind_number},
};

use crate::scenario::steps::access::Kind;

/// Begin or end of accesses by the CPU to a range, which the GPU cannot see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuMark {
    pub(crate) begins: bool,
    pub(crate) kind: Kind,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

/// Capacity of a GPU's log in records, until they are read: the maximum.
const CAPACITY: u32 = 1 << 18;
/// Records per read.
const READ_RECORDS: usize = 4096;

#[repr(C)]
struct RawLog {
    gpu: u32,
    channel: u32,
    capacity: u32,
    reserved: u32,
}

#[repr(C)]
struct RawMark {
    gpu: u32,
    event: u32,
    kind: u32,
    reserved: u32,
    va: u64,
    bytes: u64,
}

gpu::swgpu_requests! {
    RawLog, 9, "SWGPU_IOC_LOG", 16;
    RawMark, 10, "SWGPU_IOC_MARK", 32;
}

/// `SWGPU_LOG_CPU_BEGIN` and `_END`.
const CPU_BEGINS: u32 = 4;
const CPU_ENDS: u32 = 5;
/// Number of no channel: logs no accesses.
const NO_CHANNEL: u32 = u32::MAX;

/// Event, or several equal ones in a row. Fields as in `swgpu_ioctl.h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) sequence: u64,
    pub(crate) weight: u64,
    pub(crate) va: u64,
    pub(crate) physical: u64,
    /// Process id; 0 for none.
    pub(crate) pid: u32,
    pub(crate) event: u8,
    pub(crate) kind: u8,
    pub(crate) from: u8,
    pub(crate) to: u8,
}

impl Record {
    pub(crate) const BYTES: usize = 40;

    fn parse(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?));
        let [a, b, c, d, event, kind, from, to] = *bytes.last_chunk()?;
        let pid = u32::from_ne_bytes([a, b, c, d]);
        Some(Self {
            sequence: word(0)?,
            weight: word(8)?,
            va: word(16)?,
            physical: word(24)?,
            pid,
            event,
            kind,
            from,
            to,
        })
    }
}

/// Open log; the GPU logs until it is dropped.
pub(crate) struct AccessLog(File);

impl AccessLog {
    /// Opens the log of a GPU, from now on: with accesses, or of copies and mappings only.
    pub(crate) fn open(gpu: &Gpu, accesses: bool) -> anyhow::Result<Self> {
        let file = open("/dev/swgpu")?;
        let channel = if accesses { 0 } else { NO_CHANNEL };
        let mut request = RawLog { gpu: gpu.number(), channel, capacity: CAPACITY, reserved: 0 };
        ioctl(&file, &mut request).with_context(|| format!("{} failed", RawLog::NAME))?;
        Ok(Self(file))
    }

    /// Reads the records since the last read. Never waits.
    pub(crate) fn read(&mut self, records: &mut Vec<Record>) -> anyhow::Result<()> {
        let mut buffer = vec![0; READ_RECORDS * Record::BYTES];
        loop {
            let count = self.0.read(&mut buffer).context("cannot read the software GPU's log")?;
            if count == 0 {
                return Ok(());
            }
            let (complete, remainder) = buffer.get(..count).unwrap_or_default().as_chunks();
            if !remainder.is_empty() {
                bail!("the software GPU's log gave a part of a record");
            }
            records.extend(complete.iter().filter_map(Record::parse));
        }
    }
}

/// Marks CPU accesses in the log.
pub(crate) fn mark(gpu: &Gpu, mark: &CpuMark) -> anyhow::Result<()> {
    let &CpuMark { begins, kind, address: va, bytes } = mark;
    let event = if begins { CPU_BEGINS } else { CPU_ENDS };
    let mut request = RawMark { gpu: gpu.number(), event, kind: kind_number(kind), reserved: 0, va, bytes };
    ioctl(gpu.file(), &mut request).with_context(|| format!("{} failed", RawMark::NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_laid_out_as_in_the_header() {
        let mut bytes = [0; Record::BYTES];
        for (at, word) in [1u64, 2, 3, 4].into_iter().enumerate() {
            bytes[at * 8..][..8].copy_from_slice(&word.to_ne_bytes());
        }
        bytes[32..36].copy_from_slice(&7u32.to_ne_bytes());
        bytes[36..].copy_from_slice(&[1, 2, 3, 0]);
        let expected = Record { sequence: 1, weight: 2, va: 3, physical: 4, pid: 7, event: 1, kind: 2, from: 3, to: 0 };
        assert_eq!(Record::parse(&bytes), Some(expected));
    }
}
