//! Resources used by uvmd itself, from /proc.

use std::sync::LazyLock;

use procfs::{
    ProcResult,
    process::{LimitValue, Process},
};

/// Resources at one moment.
pub(super) struct Own {
    pub(super) cpu_seconds: f64,
    pub(super) resident_bytes: u64,
    pub(super) virtual_bytes: u64,
    pub(super) threads: u64,
    pub(super) open_fds: usize,
    /// Limit of open files; `None` if unlimited.
    pub(super) max_fds: Option<u64>,
    /// Start time in seconds since 1970.
    pub(super) started_seconds: Option<f64>,
}

/// Boot time in seconds since 1970. It is read once, as it moves with the clock, and start times
/// with it.
static BOOTED_SECONDS: LazyLock<Option<u64>> = LazyLock::new(|| procfs::boot_time_secs().ok());

impl Own {
    pub(super) fn read() -> Option<Self> {
        Self::try_read().ok()
    }

    fn try_read() -> ProcResult<Self> {
        let own = Process::myself()?;
        let stat = own.stat()?;
        let seconds = |ticks: u64| ticks as f64 / procfs::ticks_per_second() as f64;
        Ok(Self {
            cpu_seconds: seconds(stat.utime.saturating_add(stat.stime)),
            resident_bytes: stat.rss.saturating_mul(procfs::page_size()),
            virtual_bytes: stat.vsize,
            threads: u64::try_from(stat.num_threads).unwrap_or_default(),
            open_fds: own.fd_count()?,
            max_fds: match own.limits()?.max_open_files.soft_limit {
                LimitValue::Value(max) => Some(max),
                LimitValue::Unlimited => None,
            },
            started_seconds: BOOTED_SECONDS.map(|booted| booted as f64 + seconds(stat.starttime)),
        })
    }
}
