//! Locations of pages: host memory, or the memory of a GPU.

use std::fmt;

use serde::{Deserialize, Deserializer, de};

/// Memory of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Cpu,
    /// GPU of the machine by its number, from 0.
    Gpu(u32),
}

impl Place {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "cpu" => Some(Self::Cpu),
            _ => text.strip_prefix("gpu").and_then(|number| number.parse().ok()).map(Self::Gpu),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Gpu(number) => write!(f, "gpu{number}"),
        }
    }
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text)
            .ok_or_else(|| de::Error::custom(format!("{text:?} is not a place; write \"cpu\", \"gpu0\" or \"gpu1\"")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_the_cpu_or_a_numbered_gpu() {
        assert_eq!(Place::parse("cpu"), Some(Place::Cpu));
        assert_eq!(Place::parse("gpu1").unwrap().to_string(), "gpu1");
        for wrong in ["", "gpu", "gpu-1", "CPU", "host", "1"] {
            assert_eq!(Place::parse(wrong), None, "{wrong}");
        }
    }
}
