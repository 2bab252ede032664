//! What a policy can be told: the parameters of an override. Each reactor names its own, and nothing else is taken for one.

use std::fmt;

use model::api::rule::one_of;

/// A parameter of a policy.
#[derive(Debug)]
pub struct Parameter {
    /// Its name in overrides.
    pub name: &'static str,
    /// Which values mean something.
    pub form: Form,
}

/// Which values of a parameter mean something.
#[derive(Debug)]
pub enum Form {
    /// Whole numbers, from the first to the last of these.
    Number(u64, u64),
    /// These words, of which the first holds unless another is given.
    Word(&'static [&'static str]),
}

impl Form {
    pub(crate) fn takes(&self, value: &str) -> bool {
        match self {
            Self::Number(least, most) => value.parse().is_ok_and(|number: u64| (*least..=*most).contains(&number)),
            Self::Word(words) => words.contains(&value),
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(least, most) => write!(f, "a whole number from {least} to {most}"),
            Self::Word(words) => f.write_str(&one_of(words)),
        }
    }
}
