//! Targets, and how far they were reached.

use std::fmt;

use serde::Serialize;

/// One target, and how far it was reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Check {
    pub(super) what: String,
    pub(super) value: f64,
    pub(super) driver: f64,
    /// From and to what it may be.
    pub(super) least: f64,
    pub(super) most: f64,
    pub(super) holds: bool,
}

impl Check {
    pub(super) fn new(what: String, value: f64, driver: f64, least: f64, most: f64) -> Self {
        Self { what, value, driver, least, most, holds: (least..=most).contains(&value) }
    }
}

/// In hundredths of the driver's.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, value, driver, least, most, holds } = self;
        let share =
            |value: &f64| if *driver == 0.0 { value.to_string() } else { format!("{:.1} %", value / driver * 100.0) };
        let mark = if *holds { "ok  " } else { "MISS" };
        write!(f, "{mark} {what}: {} of the driver's, ", share(value))?;
        if *least > 0.0 {
            write!(f, "from {} to {}", share(least), share(most))
        } else {
            write!(f, "at most {}", share(most))
        }
    }
}
