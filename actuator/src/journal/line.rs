//! Line of the journal: a JSON object without braces inside, which ends in the checksum of the text
//! before that.
//!
//! A later version with another meaning gets another number. It keeps the place of the checksum, and
//! should keep the names `boot`, `pid`, `start_ticks`, `begin` and `end`, so that a uvmd older than
//! the line knows which memory not to touch.

use std::{borrow::Cow, io};

use model::{Advice, GpuUuid, Place, ProcessId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sys::uvm::Uuid;

use super::in_force::InForce;

/// Version of written lines.
pub(super) const VERSION: u64 = 1;

/// Checksum member and end of the object, with eight digits between.
const CHECKSUM: &[u8] = b",\"crc32\":\"";
const END: &[u8] = b"\"}";
const DIGITS: usize = 8;

/// Advice about to be given, or withdrawn.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Line<'a> {
    version: u64,
    pub(super) boot: Cow<'a, str>,
    pid: u32,
    start_ticks: u64,
    /// GPU of the decision.
    gpu: String,
    begin: u64,
    end: u64,
    advice: Kind,
    /// GPU that the advice names; absent for the host, or none.
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

/// Parsed line.
#[derive(Debug)]
pub(super) enum Parsed<'a> {
    /// First line of a file: boot of its last rewrite.
    Header {
        /// Id of the boot.
        boot: String,
    },
    /// Advice.
    Advice(Line<'a>),
    /// Intact, of an unknown version.
    Newer(Newer),
    /// Malformed.
    Damaged,
}

/// Readable part of a line of a later version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Newer {
    pub(super) version: u64,
    pub(super) boot: Option<String>,
    /// Process; `None`: any.
    pub(super) process: Option<ProcessId>,
    /// Range; `None`: all of the process's memory.
    pub(super) range: Option<(u64, u64)>,
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
            version: VERSION,
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

    /// Text with its checksum and its end.
    pub(super) fn text(&self) -> io::Result<Vec<u8>> {
        sealed(self)
    }

    pub(super) fn process(&self) -> ProcessId {
        ProcessId { pid: self.pid, start_ticks: self.start_ticks }
    }

    pub(super) fn apply(&self, in_force: &mut InForce) {
        let Some((gpu, advice)) = self.gpu_and_advice() else { return };
        let (process, range) = (self.process(), (self.begin, self.end));
        if self.is_withdrawn {
            in_force.remove(process, range, advice);
        } else {
            in_force.add(process, gpu, range, advice);
        }
    }

    fn gpu_and_advice(&self) -> Option<(GpuUuid, Advice)> {
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

/// First line of a file written in this boot.
pub(super) fn header(boot: &str) -> io::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct Header<'a> {
        version: u64,
        boot: &'a str,
    }
    sealed(&Header { version: VERSION, boot })
}

/// Parses a line without its line feed.
pub(super) fn parse(text: &[u8]) -> Parsed<'_> {
    let Ok(value) = serde_json::from_slice::<Value>(text) else { return Parsed::Damaged };
    let number = |name: &str| value.get(name).and_then(Value::as_u64);
    let boot = value.get("boot").and_then(Value::as_str).map(ToOwned::to_owned);
    match number("version") {
        Some(VERSION) if is_sealed(text) && is_flat(text) => match boot {
            Some(boot) if value.get("pid").is_none() => Parsed::Header { boot },
            _ => advice(text),
        },
        Some(version) if version > VERSION && is_sealed(text) => {
            let pid = number("pid").and_then(|pid| u32::try_from(pid).ok());
            let process = pid.zip(number("start_ticks")).map(|(pid, start_ticks)| ProcessId { pid, start_ticks });
            let range = number("begin").zip(number("end")).filter(|(begin, end)| begin < end);
            Parsed::Newer(Newer { version, boot, process, range })
        }
        _ => Parsed::Damaged,
    }
}

/// Whether there are no further braces, as in any line ever written. Otherwise an object within
/// damaged text around a line would count as advice at the next read.
fn is_flat(text: &[u8]) -> bool {
    text.iter().filter(|byte| matches!(byte, b'{' | b'}')).count() == 2
}

fn advice(text: &[u8]) -> Parsed<'_> {
    match serde_json::from_slice::<Line<'_>>(text) {
        Ok(line) if line.begin < line.end && line.gpu_and_advice().is_some() => Parsed::Advice(line),
        _ => Parsed::Damaged,
    }
}

fn sealed(line: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line)?;
    // The final brace.
    text.pop();
    let checksum = format!("{:08x}", crc32fast::hash(&text));
    text.extend([CHECKSUM, checksum.as_bytes(), END, b"\n"].concat());
    Ok(text)
}

fn is_sealed(text: &[u8]) -> bool {
    let parts = text.strip_suffix(END).and_then(|text| text.split_last_chunk::<DIGITS>());
    let sums = parts.and_then(|(text, digits)| {
        let body = text.strip_suffix(CHECKSUM)?;
        Some(format!("{:08x}", crc32fast::hash(body)).as_bytes() == digits)
    });
    sums.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: GpuUuid = GpuUuid([1; 16]);
    const PROCESS: ProcessId = ProcessId { pid: 42, start_ticks: 7 };

    fn line() -> String {
        let line = Line::new("b", PROCESS, GPU, (0, 4096), Advice::AccessedBy(GPU), false);
        String::from_utf8(line.text().unwrap()).unwrap().trim_end().to_owned()
    }

    /// Line with a correct checksum.
    fn resealed(line: &str) -> String {
        let body = line.split(",\"crc32\"").next().unwrap();
        format!("{body},\"crc32\":\"{:08x}\"}}", crc32fast::hash(body.as_bytes()))
    }

    #[test]
    fn line_round_trips() {
        let line = line();
        assert_eq!(
            line.split(",\"crc32\"").next().unwrap(),
            r#"{"version":1,"boot":"b","pid":42,"start_ticks":7,"gpu":"GPU-01010101-0101-0101-0101-010101010101","begin":0,"end":4096,"advice":"accessed_by","processor":"GPU-01010101-0101-0101-0101-010101010101""#
        );
        let Parsed::Advice(parsed) = parse(line.as_bytes()) else { panic!("{line}") };
        assert_eq!(
            (parsed.boot.as_ref(), parsed.process(), parsed.gpu_and_advice()),
            ("b", PROCESS, Some((GPU, Advice::AccessedBy(GPU))))
        );
        let header = header("b").unwrap();
        assert!(matches!(parse(header.trim_ascii_end()), Parsed::Header { boot } if boot == "b"));
    }

    #[test]
    fn checksum_detects_any_changed_byte() {
        let line = line().into_bytes();
        for at in 0..line.len() {
            for bit in 0..8 {
                let mut damaged = line.clone();
                damaged[at] ^= 1 << bit;
                let parsed = parse(&damaged);
                assert!(matches!(parsed, Parsed::Damaged), "{}", damaged.escape_ascii());
            }
        }
    }

    #[test]
    fn line_with_missing_or_invalid_members_is_damaged() {
        let line = line();
        for wrong in [
            line.replace("\"version\":1,", ""),
            line.replace(&GPU.to_string(), "GPU-1"),
            line.replace("4096", "0"),
            line.replace("\"pid\":42", "\"pid\":42,\"pid\":43"),
            line.replace("\"pid\":42", "\"pid\":-1"),
            line.replace("\"start_ticks\":7,", ""),
        ] {
            let wrong = resealed(&wrong);
            assert!(matches!(parse(wrong.as_bytes()), Parsed::Damaged), "{wrong}");
        }
    }

    #[test]
    fn target_of_a_later_version_is_read_if_its_checksum_matches() {
        let newer = resealed(&line().replace("\"version\":1", "\"version\":2"));
        let Parsed::Newer(found) = parse(newer.as_bytes()) else { panic!("{newer}") };
        let expected = Newer { version: 2, boot: Some("b".to_owned()), process: Some(PROCESS), range: Some((0, 4096)) };
        assert_eq!(found, expected);
        assert!(matches!(parse(line().replace("\"version\":1", "\"version\":2").as_bytes()), Parsed::Damaged));
        // With all members elsewhere, and objects inside.
        let strange = resealed(r#"{"version":900,"who":{"pid":42},"boot":7,"begin":8,"end":8"#);
        let nothing = Newer { version: 900, boot: None, process: None, range: None };
        assert!(matches!(parse(strange.as_bytes()), Parsed::Newer(found) if found == nothing));
        for version in ["-1", "0", "\"1\"", "1.5", "null"] {
            let text = resealed(&line().replace("\"version\":1", &format!("\"version\":{version}")));
            assert!(matches!(parse(text.as_bytes()), Parsed::Damaged), "{text}");
        }
    }
}
