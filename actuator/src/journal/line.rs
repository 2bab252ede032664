//! A line of the journal.

use std::{borrow::Cow, io};

use model::{Advice, GpuUuid, Place, ProcessId};
use serde::{Deserialize, Serialize};
use sys::uvm::Uuid;

use super::in_force::InForce;

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Line<'a> {
    pub(super) boot: Cow<'a, str>,
    pid: u32,
    start_ticks: u64,
    /// Where it was decided.
    gpu: String,
    begin: u64,
    end: u64,
    advice: Kind,
    /// Of whom the advice speaks: a GPU, or nobody for the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    processor: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_withdrawn: bool,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    PreferredLocation,
    AccessedBy,
    ReadDuplication,
}

impl<'a> Line<'a> {
    pub(super) fn new(
        boot: &'a str,
        process: ProcessId,
        gpu: GpuUuid,
        (begin, end): (u64, u64),
        advice: Advice,
        is_withdrawn: bool,
    ) -> Self {
        let (kind, processor) = match advice {
            Advice::PreferredLocation(Place::Host) => (Kind::PreferredLocation, None),
            Advice::PreferredLocation(Place::Gpu(gpu)) => (Kind::PreferredLocation, Some(gpu)),
            Advice::AccessedBy(gpu) => (Kind::AccessedBy, Some(gpu)),
            Advice::ReadDuplication => (Kind::ReadDuplication, None),
        };
        Self {
            boot: boot.into(),
            pid: process.pid,
            start_ticks: process.start_ticks,
            gpu: gpu.to_string(),
            begin,
            end,
            advice: kind,
            processor: processor.map(|gpu| gpu.to_string()),
            is_withdrawn,
        }
    }

    /// `None` if that is no line of a journal.
    pub(super) fn parse(text: &'a [u8]) -> Option<Self> {
        let line: Self = serde_json::from_slice(text).ok()?;
        (line.begin < line.end && line.who().is_some()).then_some(line)
    }

    pub(super) fn apply(&self, in_force: &mut InForce) {
        let Some((gpu, advice)) = self.who() else { return };
        let (process, range) = (ProcessId { pid: self.pid, start_ticks: self.start_ticks }, (self.begin, self.end));
        if self.is_withdrawn {
            in_force.remove(process, range, advice);
        } else {
            in_force.add(process, gpu, range, advice);
        }
    }

    fn who(&self) -> Option<(GpuUuid, Advice)> {
        let parse = |text: &str| text.parse::<Uuid>().ok().map(|uuid| GpuUuid(uuid.bytes()));
        let processor = match &self.processor {
            Some(text) => Some(parse(text)?),
            None => None,
        };
        let advice = match (self.advice, processor) {
            (Kind::PreferredLocation, None) => Advice::PreferredLocation(Place::Host),
            (Kind::PreferredLocation, Some(gpu)) => Advice::PreferredLocation(Place::Gpu(gpu)),
            (Kind::AccessedBy, Some(gpu)) => Advice::AccessedBy(gpu),
            (Kind::ReadDuplication, None) => Advice::ReadDuplication,
            (Kind::AccessedBy, None) | (Kind::ReadDuplication, Some(_)) => return None,
        };
        Some((parse(&self.gpu)?, advice))
    }
}

pub(super) fn text(lines: &[Line<'_>]) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
    }
    Ok(text)
}
