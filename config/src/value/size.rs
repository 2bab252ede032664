//! Amounts of memory, with their bounds.

use model::text::parse_bytes;
use serde::{Serialize, Serializer};

use super::Value;

/// Amount of memory with its bounds in its type, in KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size<const MIN_KIB: u64, const MAX_KIB: u64> {
    /// Amount in bytes.
    pub bytes: u64,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

macro_rules! sizes {
    ($($(#[$doc:meta])* $name:ident: $min_kib:expr, $min:literal to $max_kib:expr, $max:literal, as in $example:literal;)*) => {$(
        $(#[$doc])*
        pub type $name = Size<{ $min_kib }, { $max_kib }>;

        impl Value for $name {
            const ALLOWED: &'static str =
                concat!("a size from \"", $min, "\" to \"", $max, "\", such as \"", $example, "\"");

            fn of_text(text: &str) -> Option<Self> {
                Self::within(parse_bytes(text).ok()?)
            }

            fn of_number(number: i64) -> Option<Self> {
                Self::within(number.try_into().ok()?)
            }
        }
    )*};
}
sizes! {
    /// Size from which a new audit log is started.
    AuditSize: 64, "64 KiB" to MIB, "1 GiB", as in "16 MiB";
    /// Maximum bytes of one migration call, which holds the process's locks meanwhile.
    CallSize: 2 * KIB, "2 MiB" to 32 * KIB, "32 MiB", as in "2 MiB";
    /// Bytes that may be migrated, in total or per second.
    Budget: KIB, "1 MiB" to MIB * MIB, "1024 TiB", as in "4 GiB";
    /// Memory that stays free.
    Reserve: 0, "0" to KIB * MIB, "1 TiB", as in "1 GiB";
}

impl<const MIN_KIB: u64, const MAX_KIB: u64> Size<MIN_KIB, MAX_KIB> {
    fn within(bytes: u64) -> Option<Self> {
        (MIN_KIB * KIB..=MAX_KIB * KIB).contains(&bytes).then_some(Self { bytes })
    }
}

impl<const MIN_KIB: u64, const MAX_KIB: u64> Serialize for Size<MIN_KIB, MAX_KIB> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let units = [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", MIB), ("KiB", KIB)];
        let whole = units.into_iter().find(|(_, unit_bytes)| self.bytes > 0 && self.bytes.is_multiple_of(*unit_bytes));
        let (unit, unit_bytes) = whole.unwrap_or(("B", 1));
        serializer.collect_str(&format_args!("{} {unit}", self.bytes / unit_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::tests::texts;

    #[test]
    fn bounds_agree_with_the_messages() {
        texts::<AuditSize>(&["64 KiB", "1GiB"], &["65535", "1025 MiB", "", "big"]);
        texts::<CallSize>(&["2 MiB", "32 MiB"], &["1 MiB", "33 MiB"]);
        texts::<Budget>(&["1 MiB", "1024 TiB"], &["1 KiB", "1025 TiB"]);
        texts::<Reserve>(&["0", "1 TiB"], &["1025 GiB", "-1"]);
    }

    #[test]
    fn sizes_round_trip() {
        for text in ["\"64 KiB\"", "\"1536 KiB\"", "\"3 GiB\"", "\"1048577 B\""] {
            let size = Reserve::of_text(text.trim_matches('"')).unwrap();
            assert_eq!(serde_json::to_string(&size).unwrap(), text);
        }
    }
}
