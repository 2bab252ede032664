//! Values of query parameters, each with its bounds in its type.

use std::borrow::Cow;

use model::api::text::parse_address;
use serde::{Deserialize, Deserializer, de::Error};

/// An address as the API writes it: in hexadecimal, with `0x`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address(pub(super) u64);

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        parse_address(&text).map(Self).map_err(D::Error::custom)
    }
}

/// A whole number from `MIN` to `MAX`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UpTo<const MAX: u32, const MIN: u32 = 1>(pub(crate) u32);

impl<'de, const MAX: u32, const MIN: u32> Deserialize<'de> for UpTo<MAX, MIN> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        let number = text.parse().ok().filter(|number| (MIN..=MAX).contains(number));
        number.map(Self).ok_or_else(|| D::Error::custom(format!("{text:?} is no whole number from {MIN} to {MAX}")))
    }
}
