//! Relevant events of a profiler's trace, read one at a time. Others, most of the file, are
//! skipped.

use std::{fmt, io::BufRead};

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use thiserror::Error;

const NS_PER_US: f64 = 1e3;
/// PyTorch's device type of CUDA in memory events; 0 is the CPU.
const CUDA: u64 = 1;

/// Relevant event.
pub(super) struct Event {
    pub(super) time_ns: u64,
    pub(super) duration_ns: u64,
    pub(super) kind: Kind,
}

pub(super) enum Kind {
    /// Allocation, or a free if `bytes` is negative.
    Memory {
        /// `None` for the CPU.
        device: Option<u32>,
        address: u64,
        bytes: i64,
        /// Total of allocated bytes after the event.
        total_bytes: Option<u64>,
    },
    /// Kernel, copy or fill on a GPU.
    Work { device: u32, stream: u32, correlation: Option<u64>, name: String, grid: [u32; 3], block: [u32; 3] },
    /// Call to the runtime or the driver.
    Call { correlation: u64 },
}

/// Reads the events: the top-level list, or the list in a member of the top-level object.
pub(super) fn read(text: impl BufRead) -> Result<Vec<Event>, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_reader(text);
    let mut events = Vec::new();
    Trace(&mut events).deserialize(&mut reader)?;
    reader.end()?;
    Ok(events)
}

struct Trace<'a>(&'a mut Vec<Event>);

impl<'de> DeserializeSeed<'de> for Trace<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Trace<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events, or an object with the member traceEvents")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut found = false;
        while let Some(member) = map.next_key::<String>()? {
            if member == "traceEvents" {
                found = true;
                map.next_value_seed(List(self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        if found { Ok(()) } else { Err(de::Error::missing_field("traceEvents")) }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<(), A::Error> {
        List(self.0).visit_seq(seq)
    }
}

struct List<'a>(&'a mut Vec<Event>);

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of events")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(Parsed(event)) = seq.next_element()? {
            self.0.extend(event);
        }
        Ok(())
    }
}

/// Event in JSON. Members of irrelevant events may be of any type.
#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    ph: Any,
    #[serde(default)]
    cat: Any,
    #[serde(default)]
    name: Any,
    #[serde(default)]
    ts: Any,
    #[serde(default)]
    dur: Any,
    #[serde(default)]
    args: Args,
}

#[derive(Default)]
struct Args {
    correlation: Any,
    device: Any,
    stream: Any,
    grid: Any,
    block: Any,
    device_type: Any,
    device_id: Any,
    address: Any,
    bytes: Any,
    total_bytes: Any,
}

impl<'de> Deserialize<'de> for Args {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Args;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an event's arguments")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Args, A::Error> {
                let mut args = Args::default();
                while let Some(member) = map.next_key::<String>()? {
                    let slot = match member.as_str() {
                        "correlation" => &mut args.correlation,
                        "device" => &mut args.device,
                        "stream" => &mut args.stream,
                        "grid" => &mut args.grid,
                        "block" => &mut args.block,
                        "Device Type" => &mut args.device_type,
                        "Device Id" => &mut args.device_id,
                        "Addr" => &mut args.address,
                        "Bytes" => &mut args.bytes,
                        "Total Allocated" => &mut args.total_bytes,
                        _ => {
                            map.next_value::<IgnoredAny>()?;
                            continue;
                        }
                    };
                    *slot = map.next_value()?;
                }
                Ok(args)
            }

            // Some profilers write an empty list, null or a string if there are no arguments.
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Args, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Args::default())
            }

            fn visit_unit<E: de::Error>(self) -> Result<Args, E> {
                Ok(Args::default())
            }

            fn visit_str<E: de::Error>(self, _: &str) -> Result<Args, E> {
                Ok(Args::default())
            }
        }
        deserializer.deserialize_any(Members)
    }
}

type Any = serde_json::Value;

/// Event, if relevant.
struct Parsed(Option<Event>);

impl<'de> Deserialize<'de> for Parsed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parse(Raw::deserialize(deserializer)?).map(Self).map_err(de::Error::custom)
    }
}

/// Member of an event with an invalid value. The JSON reader adds the line.
#[derive(Debug, Error)]
#[error("invalid {member} {value}: expected {expected}")]
struct InvalidMember {
    member: &'static str,
    /// Beginning of the value.
    value: String,
    expected: &'static str,
}

impl InvalidMember {
    fn new(member: &'static str, value: &Any, expected: &'static str) -> Self {
        Self { member, value: value.to_string().chars().take(40).collect(), expected }
    }
}

/// Parses an event.
fn parse(raw: Raw) -> Result<Option<Event>, InvalidMember> {
    let Raw { ph, cat, name, ts, dur, args } = raw;
    let kind = match (ph.as_str(), cat.as_str(), name.as_str()) {
        (Some("i" | "I"), _, Some("[memory]")) => memory(&args)?,
        (Some("X"), Some("kernel" | "gpu_memcpy" | "gpu_memset" | "Kernel" | "Memcpy" | "Memset"), Some(name)) => {
            work(name, &args)?
        }
        (Some("X"), Some("cuda_runtime" | "cuda_driver" | "Runtime"), _) => match args.correlation.as_u64() {
            Some(correlation) => Kind::Call { correlation },
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    let instant = matches!(kind, Kind::Memory { .. });
    let duration_ns = if instant { 0 } else { nanoseconds("dur", &dur)? };
    Ok(Some(Event { time_ns: nanoseconds("ts", &ts)?, duration_ns, kind }))
}

fn memory(args: &Args) -> Result<Kind, InvalidMember> {
    let device = match args.device_type.as_u64() {
        Some(CUDA) => Some(number("Device Id", &args.device_id)?),
        _ => None,
    };
    let bytes = args.bytes.as_i64().filter(|&bytes| bytes != 0);
    let bytes = bytes.ok_or_else(|| InvalidMember::new("Bytes", &args.bytes, "a size other than 0"))?;
    let address = args.address.as_u64();
    let address = address.ok_or_else(|| InvalidMember::new("Addr", &args.address, "an address"))?;
    Ok(Kind::Memory { device, address, bytes, total_bytes: args.total_bytes.as_u64() })
}

fn work(name: &str, args: &Args) -> Result<Kind, InvalidMember> {
    Ok(Kind::Work {
        device: number("device", &args.device)?,
        stream: number("stream", &args.stream)?,
        correlation: args.correlation.as_u64(),
        name: name.to_owned(),
        grid: shape(&args.grid),
        block: shape(&args.block),
    })
}

/// Dimensions of a grid or block; zeros for copies and fills.
fn shape(value: &Any) -> [u32; 3] {
    let side =
        |index| value.get(index).and_then(Any::as_u64).and_then(|side: u64| u32::try_from(side).ok()).unwrap_or(0);
    [side(0_usize), side(1), side(2)]
}

fn number(member: &'static str, value: &Any) -> Result<u32, InvalidMember> {
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| InvalidMember::new(member, value, "a number of 32 bits"))
}

fn nanoseconds(member: &'static str, value: &Any) -> Result<u64, InvalidMember> {
    if let Some(ns) = value.as_u64().and_then(|us| us.checked_mul(1000)) {
        return Ok(ns);
    }
    // Integer microseconds and their fraction are converted separately, as nanoseconds together
    // would not fit a float.
    let us = value.as_f64().filter(|us| (0.0..9e15).contains(us));
    let us = us.ok_or_else(|| InvalidMember::new(member, value, "a time in microseconds"))?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the range checked above")]
    let (integer_us, fraction_ns) = (us.trunc() as u64, (us.fract() * NS_PER_US).round() as u64);
    Ok(integer_us * 1000 + fraction_ns)
}
