//! Settings of the environment.

use std::env;

/// Settings, read once by `cuInit`.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "settings are independent of each other")]
pub(crate) struct Settings {
    /// `CUDA_LAB_DEVICES`: number of devices; 1 by default, none makes `cuInit` fail.
    pub(crate) devices: usize,
    /// `CUDA_LAB_MEMORY_MIB`: memory of each device, in bytes; 4,096 MiB by default.
    pub(crate) memory_bytes: u64,
    /// `CUDA_LAB_ARCHITECTURE`: compute capability that follows from the architecture's name.
    pub(crate) capability: (i32, i32),
    /// `CUDA_LAB_WINDOW`: accesses of the lab's GPU that wait for a fault at a time; 256 by
    /// default.
    pub(crate) window: u32,
    /// `CUDA_LAB_RESIDENT_BLOCKS`: thread blocks in progress at a time; 1,024 by
    /// default, as a large GPU has them.
    pub(crate) resident_blocks: u32,
    /// `CUDA_LAB_CONCURRENT`: whether CPU and GPU access managed memory concurrently; yes unless 0.
    pub(crate) concurrent: bool,
    /// `CUDA_LAB_MANAGED`: `cuMemAlloc` and pools allocate managed memory, so that a program that knows
    /// nothing of it oversubscribes; no unless 1.
    pub(crate) managed: bool,
    /// `CUDA_LAB_POOLS`: whether devices say that they support memory pools; no unless 1.
    pub(crate) pools: bool,
    /// `CUDA_LAB_LOSES`: word of 8 bytes of each managed allocation whose writes by kernels are
    /// lost.
    pub(crate) loses: Option<u64>,
    /// `CUDA_LAB_HANGS`: kernels never end.
    pub(crate) hangs: bool,
    /// `CUDA_LAB_STATS`: prints statistics at the end.
    pub(crate) stats: bool,
    /// `CUDA_LAB_LOG`: path of the log, to which the process id is added.
    pub(crate) log: Option<String>,
    /// `CUDA_LAB_LOG_ACCESSES`: the log has what each operation accesses; no unless 1.
    pub(crate) log_accesses: bool,
}

impl Settings {
    /// Whether accesses are observed: nobody sees them without a log.
    pub(crate) const fn observes(&self) -> bool {
        self.log.is_some() && self.log_accesses
    }
}

fn number(name: &str) -> Option<u64> {
    env::var(name).ok()?.trim().parse().ok()
}

fn is_set(name: &str) -> bool {
    number(name) == Some(1)
}

/// Whether failed and absent calls are told on standard error: `CUDA_LAB_DEBUG`.
pub(crate) fn debug() -> bool {
    is_set("CUDA_LAB_DEBUG")
}

/// Version of the driver API whose functions there are, as 1000 · major + 10 · minor.
const VERSION: i32 = 12090;

/// Version that `cuDriverGetVersion` reports: `CUDA_LAB_VERSION`, as in `13.0`.
pub(crate) fn version() -> i32 {
    env::var("CUDA_LAB_VERSION").ok().and_then(|text| version_of(text.trim())).unwrap_or(VERSION)
}

/// Number of a version of two parts, of 11 to 99.
fn version_of(text: &str) -> Option<i32> {
    let (major, minor) = text.split_once('.')?;
    let (major, minor): (u8, u8) = (major.parse().ok()?, minor.parse().ok()?);
    ((11..100).contains(&major) && minor < 100).then(|| 1000 * i32::from(major) + 10 * i32::from(minor))
}

/// Setting that is 1 at least.
fn small(name: &str, default: u32) -> u32 {
    number(name).and_then(|number| u32::try_from(number).ok()).unwrap_or(default).max(1)
}

/// Compute capability of an architecture: at most 8.0, for which compilers emit nothing that the
/// interpreter lacks. Those after it are 7.5 to programs.
pub(crate) fn capability(architecture: &str) -> (i32, i32) {
    match architecture {
        "pascal" => (6, 0),
        "volta" => (7, 0),
        "ampere" => (8, 0),
        _ => (7, 5),
    }
}

/// Most devices.
const DEVICES_MAX: u64 = 16;

impl Settings {
    /// Settings of the environment; what cannot be read is the default.
    pub(crate) fn from_environment() -> Self {
        let architecture = env::var("CUDA_LAB_ARCHITECTURE").unwrap_or_default();
        Self {
            devices: usize::try_from(number("CUDA_LAB_DEVICES").unwrap_or(1).min(DEVICES_MAX)).unwrap_or(1),
            memory_bytes: number("CUDA_LAB_MEMORY_MIB").unwrap_or(4096).clamp(1, 1 << 20) << 20,
            capability: capability(&architecture),
            window: small("CUDA_LAB_WINDOW", 256),
            resident_blocks: small("CUDA_LAB_RESIDENT_BLOCKS", 1024),
            concurrent: number("CUDA_LAB_CONCURRENT") != Some(0),
            managed: is_set("CUDA_LAB_MANAGED"),
            pools: is_set("CUDA_LAB_POOLS"),
            loses: number("CUDA_LAB_LOSES"),
            hangs: is_set("CUDA_LAB_HANGS"),
            stats: is_set("CUDA_LAB_STATS"),
            log: env::var("CUDA_LAB_LOG").ok().filter(|path| !path.is_empty()),
            log_accesses: is_set("CUDA_LAB_LOG_ACCESSES"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_two_parts() {
        for (text, version) in [
            ("13.0", Some(13000)),
            ("12.4", Some(12040)),
            ("13", None),
            ("13.x", None),
            ("-1.0", None),
            ("10.2", None),
            ("12.100", None),
        ] {
            assert_eq!(version_of(text), version, "{text}");
        }
    }
}
