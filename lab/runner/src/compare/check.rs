//! Checks of targets.

use std::fmt;

use serde::Serialize;

/// Check of a target.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Check {
    #[serde(rename = "what")]
    pub(super) name: String,
    pub(super) value: f64,
    pub(super) driver: f64,
    /// Permitted range, from `least` to `most`.
    pub(super) least: f64,
    pub(super) most: f64,
    pub(super) holds: bool,
}

impl Check {
    pub(super) fn new(name: String, value: f64, driver: f64, least: f64, most: f64) -> Self {
        Self { name, value, driver, least, most, holds: (least..=most).contains(&value) }
    }
}

/// Values in percent of the driver's.
impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, driver, least, most, holds } = self;
        let share =
            |value: &f64| if *driver == 0.0 { value.to_string() } else { format!("{:.1} %", value / driver * 100.0) };
        let mark = if *holds { "ok  " } else { "MISS" };
        write!(f, "{mark} {name}: {} of the driver's, ", share(value))?;
        if *least > 0.0 {
            write!(f, "from {} to {}", share(least), share(most))
        } else {
            write!(f, "at most {}", share(most))
        }
    }
}
