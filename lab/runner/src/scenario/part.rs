//! Parts of allocations: the range of an access, a prefetch or an advice.

use super::{
    Scope,
    size::Bytes,
    table::{Fault, Table},
};

/// Size of a page, the unit of the driver's calls.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// Byte range in one of the process's allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Index into the process's allocations.
    pub(crate) allocation: usize,
    pub(crate) offset_bytes: u64,
    /// Length, at least one unit.
    pub(crate) length_bytes: u64,
}

impl Part {
    /// Parse the allocation that `key` names, with the options `offset` and `length`. Both must be
    /// multiples of the unit. By default the part extends to the end of the allocation.
    pub(crate) fn take(table: &mut Table<'_>, key: &str, scope: &Scope<'_>, unit_bytes: u64) -> Result<Self, Fault> {
        let (at, allocation) = scope.allocation(&table.need::<String>(key)?)?;
        // The driver's ranges end at a page boundary.
        let bytes = allocation.bytes.next_multiple_of(unit_bytes);
        let units = |option: &str, bytes: u64| match bytes % unit_bytes {
            0 => Ok(bytes),
            _ => Err(format!("{option} = {bytes}: must be a multiple of {unit_bytes}")),
        };
        let offset_bytes = units("offset", table.take::<Bytes>("offset")?.map_or(0, |offset| offset.0))?;
        let rest_bytes = bytes.saturating_sub(offset_bytes);
        let length_bytes = units("length", table.take::<Bytes>("length")?.map_or(rest_bytes, |length| length.0))?;
        if offset_bytes >= bytes || length_bytes > rest_bytes {
            return Err(format!(
                "offset {offset_bytes} and length {length_bytes} are outside of {:?}, which has {bytes} bytes",
                allocation.name
            )
            .into());
        }
        if length_bytes == 0 {
            return Err("length = 0: there is nothing to access".into());
        }
        Ok(Self { allocation: at, offset_bytes, length_bytes })
    }

    /// Whether two parts share a byte.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        self.allocation == other.allocation
            && self.offset_bytes < other.offset_bytes + other.length_bytes
            && other.offset_bytes < self.offset_bytes + self.length_bytes
    }
}
