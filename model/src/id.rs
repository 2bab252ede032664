//! Names of GPUs and processes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A GPU's UUID, without the driver's prefix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct GpuUuid(pub [u8; 16]);

impl GpuUuid {
    /// Reads a UUID as it is displayed, in upper or lower case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (prefix, groups) = text.split_at_checked(4)?;
        let lengths = groups.split('-').map(str::len);
        let digits: String = groups.split('-').collect();
        let is_uuid = prefix.eq_ignore_ascii_case("GPU-")
            && lengths.eq([8, 4, 4, 4, 12])
            && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = is_uuid.then(|| u128::from_str_radix(&digits, 16).ok())??;
        Some(Self(number.to_be_bytes()))
    }
}

/// First group of a GPU's UUID, by which tables name it: `GPU-6f0e1c2d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortGpuUuid([u8; 4]);

impl ShortGpuUuid {
    /// Reads it as it is displayed, in upper or lower case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (prefix, digits) = text.split_at_checked(4)?;
        let is_short = prefix.eq_ignore_ascii_case("GPU-")
            && digits.len() == 8
            && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = is_short.then(|| u32::from_str_radix(digits, 16).ok())??;
        Some(Self(number.to_be_bytes()))
    }

    /// Whether it is the first group of a UUID.
    #[must_use]
    pub fn is_prefix_of(self, uuid: GpuUuid) -> bool {
        uuid.0.starts_with(&self.0)
    }
}

impl fmt::Display for GpuUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU-")?;
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                write!(f, "-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for GpuUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// GPU of a count.
///
/// The driver's events name a GPU by a processor id, as in /proc/driver/nvidia-uvm/gpus (0 is the CPU and never here). An id is a GPU's only
/// while some process uses it; then the driver gives it to the next GPU that needs one. So sums are kept by UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum GpuKey {
    /// The GPU with this UUID.
    Known(GpuUuid),
    /// The GPU that has this id in the events of a living VA space. Which one it is may yet be learned; what is counted here then moves there.
    Pending(u32),
    /// A GPU that had this id, and it was never learned which one it was. What is counted here stays here.
    Unknown(u32),
}

impl GpuKey {
    /// The UUID, if it is known.
    #[must_use]
    pub const fn uuid(self) -> Option<GpuUuid> {
        match self {
            Self::Known(uuid) => Some(uuid),
            Self::Pending(_) | Self::Unknown(_) => None,
        }
    }
}

/// Names one process for as long as the machine is up: pids are reused, start times are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// The process id in uvmd's pid namespace.
    pub pid: u32,
    /// Start time in clock ticks since boot, field 22 of /proc/PID/stat; 0 if the process was gone before it could be read.
    pub start_ticks: u64,
}
