//! Values of query parameters, each with its bounds in its type.

use std::{borrow::Cow, fmt};

use model::{GpuUuid, OwnerKey, ShortGpuUuid, VerdictKind, text::parse_address};
use serde::{Deserialize, Deserializer, de::Error};

/// Address in hexadecimal with `0x`, as the API writes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address(pub(crate) u64);

/// Whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpTo<const MAX: u32, const MIN: u32 = 1>(pub(crate) u32);

/// Process id.
pub(crate) type PidParameter = UpTo<{ u32::MAX }>;
/// User id.
pub(crate) type UidParameter = UpTo<{ u32::MAX }, 0>;

/// Exact name: not empty, and no longer than [`NAME_BYTES_MAX`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name(pub(crate) String);

/// Name of an owner, `KIND:ID` or `other`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnerName(pub(crate) OwnerKey);

/// Name of a GPU: its UUID, the first group of that, or NVML's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GpuName {
    Uuid(GpuUuid),
    ShortUuid(ShortGpuUuid),
    Index(u32),
}

/// UUID of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Uuid(pub(crate) GpuUuid);

/// Kind of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VerdictName(pub(crate) VerdictKind);

/// Maximum length of a name; names of the kernel, Kubernetes and Slurm are shorter.
const NAME_BYTES_MAX: usize = 1024;

/// Parses a value from text.
fn parsed<'de, D: Deserializer<'de>, T, E: fmt::Display>(
    deserializer: D,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, D::Error> {
    parse(&Cow::<str>::deserialize(deserializer)?).map_err(D::Error::custom)
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, |text| parse_address(text).map(Self))
    }
}

impl<'de, const MAX: u32, const MIN: u32> Deserialize<'de> for UpTo<MAX, MIN> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, |text| {
            // The parser accepts a sign as well.
            let number = Some(text).filter(|text| !text.starts_with('+')).and_then(|text| text.parse().ok());
            let number = number.filter(|number| (MIN..=MAX).contains(number));
            number.map(Self).ok_or_else(|| format!("{text:?} is not a whole number from {MIN} to {MAX}"))
        })
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, |text| match text {
            "" => Err("expected a name, not an empty value".to_owned()),
            text if text.len() > NAME_BYTES_MAX => Err(format!("longer than {NAME_BYTES_MAX} bytes")),
            text => Ok(Self(text.to_owned())),
        })
    }
}

impl<'de> Deserialize<'de> for OwnerName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, |text| {
            let (kind, id) = text.split_once(':').unwrap_or((text, ""));
            let owner = OwnerKey::parse(kind, id).filter(|_| text.len() <= NAME_BYTES_MAX);
            owner.map(Self).ok_or_else(|| {
                format!("{text:?} is not an owner: expected pod:UID, job:ID, container:ID, unit:NAME or other")
            })
        })
    }
}

impl<'de> Deserialize<'de> for GpuName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, |text| {
            let index = || Some(text).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?.parse().ok();
            let uuid = GpuUuid::parse(text).map(Self::Uuid);
            uuid.or_else(|| ShortGpuUuid::parse(text).map(Self::ShortUuid))
                .or_else(|| index().map(Self::Index))
                .ok_or_else(|| {
                    format!(
                        "{text:?} is not a GPU: expected a UUID as in /api/v1/gpus, its first group, or NVML's index"
                    )
                })
        })
    }
}

impl<'de> Deserialize<'de> for Uuid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, |text| {
            GpuUuid::parse(text)
                .map(Self)
                .ok_or_else(|| format!("{text:?} is not a UUID of a GPU: expected one as in /api/v1/gpus"))
        })
    }
}

impl<'de> Deserialize<'de> for VerdictName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        parsed(deserializer, |text| {
            let kind = VerdictKind::ALL.into_iter().find(|kind| kind.name() == text);
            kind.map(Self).ok_or_else(|| {
                let names = VerdictKind::ALL.map(VerdictKind::name).join(", ");
                format!("there is no verdict {text:?}; expected one of {names}")
            })
        })
    }
}
