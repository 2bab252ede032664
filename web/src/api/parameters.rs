//! Values of query parameters, each with its bounds in its type.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, de::Error};

/// An address as the API writes it: in hexadecimal, with `0x`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address(pub(super) u64);

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        // A sign is a digit to the parser.
        let digits = text.strip_prefix("0x").filter(|digits| !digits.starts_with('+'));
        let address = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        address.map(Self).ok_or_else(|| D::Error::custom(format!("{text:?} is no address such as 0x7f2a40000000")))
    }
}

/// A whole number from 1 to `MAX`.
#[derive(Clone, Copy, Debug)]
pub(super) struct UpTo<const MAX: u32>(pub(super) u32);

impl<'de, const MAX: u32> Deserialize<'de> for UpTo<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        let number = text.parse().ok().filter(|number| (1..=MAX).contains(number));
        number.map(Self).ok_or_else(|| D::Error::custom(format!("{text:?} is no whole number from 1 to {MAX}")))
    }
}
