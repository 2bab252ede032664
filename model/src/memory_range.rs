//! An address range of a process.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::text;

/// An address range of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct MemoryRange {
    /// First address, in hexadecimal, with `0x`.
    #[serde(serialize_with = "write", deserialize_with = "read")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub begin: u64,
    /// Address behind the last one, likewise.
    #[serde(serialize_with = "write", deserialize_with = "read")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub end: u64,
}

impl MemoryRange {
    /// First address, and the address behind the last one.
    #[must_use]
    pub const fn bounds(self) -> (u64, u64) {
        (self.begin, self.end)
    }
}

impl From<(u64, u64)> for MemoryRange {
    fn from((begin, end): (u64, u64)) -> Self {
        Self { begin, end }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn write<S: Serializer>(address: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&text::address(*address))
}

fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    text::parse_address(&String::deserialize(deserializer)?).map_err(de::Error::custom)
}
