//! How much managed memory a machine may be asked for: a program that asks for more than there is can hang the GPU, and not only its own work.

use thiserror::Error;

/// Never more than this, however large the GPU is: its other users need theirs.
const MOST_BYTES: u64 = 8 << 30;

/// What is free.
#[derive(Clone, Copy, Debug)]
pub struct Free {
    /// On the GPU (`cuMemGetInfo`).
    pub gpu_bytes: u64,
    /// On the host (`MemAvailable`); none if the kernel does not say.
    pub host_bytes: Option<u64>,
}

/// Why not.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "{asked} bytes of managed memory are more than the {allowed} allowed here ({limit}); ask for less, or use --force"
)]
pub struct Refused {
    asked: u64,
    allowed: u64,
    limit: &'static str,
}

impl Free {
    /// The most that may be asked for.
    #[must_use]
    pub fn allowed_bytes(self) -> u64 {
        self.limits().into_iter().map(|(bytes, _)| bytes).min().unwrap_or(0)
    }

    fn limits(self) -> [(u64, &'static str); 3] {
        [
            (MOST_BYTES, "8 GiB"),
            (self.gpu_bytes / 8, "an eighth of what is free on the GPU"),
            (self.host_bytes.unwrap_or(u64::MAX) / 4, "a quarter of what is available on the host"),
        ]
    }

    /// Whether that much may be asked for.
    ///
    /// # Errors
    /// [`Refused`] names the limit that is smallest.
    pub fn allow(self, asked: u64) -> Result<(), Refused> {
        let (allowed, limit) = self.limits().into_iter().min().unwrap_or((0, "nothing"));
        if asked <= allowed { Ok(()) } else { Err(Refused { asked, allowed, limit }) }
    }
}

/// `MemAvailable` of /proc/meminfo.
#[must_use]
pub fn host_available_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_large_gpu_lends_8_gib_and_not_a_byte_more() {
        let free = Free { gpu_bytes: 139 * GIB, host_bytes: Some(128 * GIB) };
        assert_eq!(free.allowed_bytes(), 8 * GIB);
        assert_eq!(free.allow(8 * GIB), Ok(()));
        assert!(free.allow(8 * GIB + 1).unwrap_err().to_string().contains("(8 GiB)"));
    }

    #[test]
    fn a_full_gpu_lends_an_eighth_of_what_is_left() {
        let free = Free { gpu_bytes: 16 * GIB, host_bytes: Some(128 * GIB) };
        assert_eq!(free.allowed_bytes(), 2 * GIB);
        assert!(free.allow(2 * GIB + 1).unwrap_err().to_string().contains("an eighth of what is free on the GPU"));
    }

    #[test]
    fn a_small_host_lends_a_quarter_of_what_is_available() {
        let free = Free { gpu_bytes: 139 * GIB, host_bytes: Some(4 * GIB) };
        assert_eq!(free.allow(GIB), Ok(()));
        assert!(free.allow(GIB + 1).unwrap_err().to_string().contains("host"));
    }

    #[test]
    fn a_gpu_without_free_memory_lends_nothing() {
        let free = Free { gpu_bytes: 7, host_bytes: None };
        assert!(free.allow(1).is_err());
    }

    #[test]
    fn available_memory_is_read_from_meminfo() {
        let text = "MemTotal:       65536000 kB\nMemFree:         1000 kB\nMemAvailable:   2048 kB\n";
        assert_eq!(host_available_bytes(text), Some(2 << 20));
        for bad in ["", "MemAvailable: kB", "MemAvailable: 12", "MemAvailable: 99999999999999999999 kB"] {
            assert_eq!(host_available_bytes(bad), None, "{bad}");
        }
    }
}
