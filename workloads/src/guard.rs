//! Limit of managed memory on a machine. A program that requests more than there is can hang the
//! GPU, and not only its own work.

use thiserror::Error;

/// Limit on GPUs of any size: other users need memory too.
const MAX_BYTES: u64 = 8 << 30;

/// Free memory.
#[derive(Clone, Copy, Debug)]
pub struct FreeMemory {
    /// Free GPU memory (`cuMemGetInfo`).
    pub gpu_bytes: u64,
    /// Available host memory (`MemAvailable`); none if the kernel does not report it.
    pub host_bytes: Option<u64>,
}

/// Error of a request above the limit.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "{requested} bytes of managed memory are more than the {allowed} allowed here ({limit}); request less, or use --force"
)]
pub struct Denied {
    requested: u64,
    allowed: u64,
    limit: &'static str,
}

impl FreeMemory {
    /// Maximum that may be requested.
    #[must_use]
    pub fn allowed_bytes(self) -> u64 {
        self.limits().into_iter().map(|(bytes, _)| bytes).min().unwrap_or(0)
    }

    fn limits(self) -> [(u64, &'static str); 3] {
        [
            (MAX_BYTES, "8 GiB"),
            (self.gpu_bytes / 8, "an eighth of the GPU's free memory"),
            (self.host_bytes.unwrap_or(u64::MAX) / 4, "a quarter of the host's available memory"),
        ]
    }

    /// Checks a request against the limits.
    ///
    /// # Errors
    /// [`Denied`] names the smallest limit.
    pub fn check(self, requested: u64) -> Result<(), Denied> {
        let (allowed, limit) = self.limits().into_iter().min().unwrap_or((0, "nothing"));
        if requested <= allowed { Ok(()) } else { Err(Denied { requested, allowed, limit }) }
    }
}

/// Value of `MemAvailable` in /proc/meminfo.
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
    fn a_large_gpu_allows_8_gib_at_most() {
        let free = FreeMemory { gpu_bytes: 139 * GIB, host_bytes: Some(128 * GIB) };
        assert_eq!(free.allowed_bytes(), 8 * GIB);
        assert_eq!(free.check(8 * GIB), Ok(()));
        assert!(free.check(8 * GIB + 1).unwrap_err().to_string().contains("(8 GiB)"));
    }

    #[test]
    fn a_full_gpu_allows_an_eighth_of_its_free_memory() {
        let free = FreeMemory { gpu_bytes: 16 * GIB, host_bytes: Some(128 * GIB) };
        assert_eq!(free.allowed_bytes(), 2 * GIB);
        assert!(free.check(2 * GIB + 1).unwrap_err().to_string().contains("an eighth of the GPU's free memory"));
    }

    #[test]
    fn a_small_host_allows_a_quarter_of_its_available_memory() {
        let free = FreeMemory { gpu_bytes: 139 * GIB, host_bytes: Some(4 * GIB) };
        assert_eq!(free.check(GIB), Ok(()));
        assert!(free.check(GIB + 1).unwrap_err().to_string().contains("host"));
    }

    #[test]
    fn a_gpu_without_free_memory_allows_nothing() {
        let free = FreeMemory { gpu_bytes: 7, host_bytes: None };
        assert!(free.check(1).is_err());
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
