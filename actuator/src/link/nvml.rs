//! Throughput of a GPU's `PCIe` link, measured by NVIDIA's management library, and integrated over
//! time.
//!
//! It is an estimate. The library measures one direction for 20 ms per query, so with both
//! directions in turn each is sampled for at most half of the time, and the rest is assumed to be
//! equal. It includes all traffic on the GPU's link, of any process: also copies of unmanaged
//! memory, other devices, and protocol overhead. It excludes `NVLink`, and the link of a Grace CPU.
//! It serves to compare successive windows of the same programs, and for nothing finer.
//!
//! As with all queries to NVML, the reply may never come: a separate thread makes them, and no
//! other waits for it. It queries a GPU while there are requests here, and closes the library
//! otherwise, as an open library prevents an unload of the driver.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::{Duration, Instant},
};

use model::{GpuUuid, LinkBytes};
use nvml_wrapper::{Nvml, enum_wrappers::device::PcieUtilCounter, error::NvmlError};

const LIBRARY: &str = "libnvidia-ml.so.1";
/// Interval of samples; each GPU adds its 40 ms.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(50);
/// Time without requests after which sampling stops.
const UNREQUESTED_MAX: Duration = Duration::from_secs(5);
/// Maximum age of a sum: without growth for this long, the current traffic is unknown.
const STALE: Duration = Duration::from_secs(1);
/// Time until the next attempt after a failure of the library.
const RETRY: Duration = Duration::from_mins(1);

/// Meter of the link.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug, Default)]
struct Shared {
    gpus: BTreeMap<GpuUuid, Sampled>,
    is_running: bool,
    /// Time of the last failure of the library.
    failed: Option<Instant>,
}

#[derive(Debug)]
struct Sampled {
    requested_at: Instant,
    sums: Option<Sums>,
}

/// Integrated throughput.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sums {
    at: Instant,
    bytes: LinkBytes,
}

/// Bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rates {
    htod: u64,
    dtoh: u64,
}

impl Sums {
    /// Adds a sample, which is assumed to hold since the last one, if that is recent enough.
    fn add(last: Option<Self>, rates: Rates, now: Instant) -> Self {
        let (since, bytes) = last.map_or((Duration::ZERO, LinkBytes::default()), |last| {
            (now.saturating_duration_since(last.at), last.bytes)
        });
        let since = if since > STALE { Duration::ZERO } else { since };
        let add = |sum: u64, rate: u64| {
            let more = u128::from(rate) * since.as_micros() / 1_000_000;
            sum.saturating_add(u64::try_from(more).unwrap_or(u64::MAX))
        };
        Self { at: now, bytes: LinkBytes { htod: add(bytes.htod, rates.htod), dtoh: add(bytes.dtoh, rates.dtoh) } }
    }
}

impl Sampler {
    pub(super) fn read(&self, gpu: GpuUuid) -> Option<LinkBytes> {
        let now = Instant::now();
        let mut shared = lock(&self.shared);
        let sampled = shared.gpus.entry(gpu).or_insert(Sampled { requested_at: now, sums: None });
        sampled.requested_at = now;
        let sums = sampled.sums;
        let may_start = shared.failed.is_none_or(|failed| now.saturating_duration_since(failed) > RETRY);
        if !shared.is_running && may_start {
            shared.is_running = self.start(&mut shared, now);
        }
        sums.filter(|sums| now.saturating_duration_since(sums.at) <= STALE).map(|sums| sums.bytes)
    }

    fn start(&self, shared: &mut Shared, now: Instant) -> bool {
        let weak = Arc::downgrade(&self.shared);
        match thread::Builder::new().name("link".to_owned()).spawn(move || run(&weak)) {
            Ok(_) => true,
            Err(error) => {
                tracing::warn!("no thread to measure links: {error}");
                shared.failed = Some(now);
                false
            }
        }
    }
}

fn run(shared: &Weak<Mutex<Shared>>) {
    let error = sample_while_requested(shared).err();
    let Some(shared) = shared.upgrade() else { return };
    let mut shared = lock(&shared);
    shared.is_running = false;
    if let Some(error) = error {
        if shared.failed.is_none() {
            tracing::info!("NVML is unavailable, so the GPUs' link traffic is not measured: {error}");
        }
        shared.failed = Some(Instant::now());
    }
}

fn sample_while_requested(shared: &Weak<Mutex<Shared>>) -> Result<(), NvmlError> {
    let library = Nvml::builder().lib_path(LIBRARY.as_ref()).init()?;
    while let Some(held) = shared.upgrade() {
        let now = Instant::now();
        let requested_gpus: Vec<GpuUuid> = {
            let mut held = lock(&held);
            held.gpus.retain(|_, sampled| now.saturating_duration_since(sampled.requested_at) <= UNREQUESTED_MAX);
            held.gpus.keys().copied().collect()
        };
        drop(held);
        if requested_gpus.is_empty() {
            break;
        }
        let (mut failure, mut is_useful) = (None, false);
        for gpu in requested_gpus {
            match rates(&library, gpu) {
                Ok(rates) => {
                    is_useful = true;
                    let Some(held) = shared.upgrade() else { break };
                    if let Some(sampled) = lock(&held).gpus.get_mut(&gpu) {
                        sampled.sums = Some(Sums::add(sampled.sums, rates, Instant::now()));
                    }
                }
                Err(error) => failure = Some(error),
            }
        }
        if let Some(error) = failure.filter(|_| !is_useful) {
            // It has failed already.
            let _ = library.shutdown();
            return Err(error);
        }
        thread::sleep(SAMPLE_INTERVAL);
    }
    library.shutdown()
}

/// The GPU transmits the traffic to the host.
fn rates(library: &Nvml, gpu: GpuUuid) -> Result<Rates, NvmlError> {
    let device = library.device_by_uuid(gpu.to_string())?;
    // In KB; whether of 1000 or 1024 bytes is undocumented.
    let rate = |counter| device.pcie_throughput(counter).map(|kilobytes| u64::from(kilobytes) * 1000);
    Ok(Rates { htod: rate(PcieUtilCounter::Receive)?, dtoh: rate(PcieUtilCounter::Send)? })
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_adds_up_over_time() {
        let begun = Instant::now();
        let rates = Rates { htod: 1_000_000, dtoh: 3_000 };
        let first = Sums::add(None, rates, begun);
        assert_eq!(first.bytes, LinkBytes::default(), "before the first sample nothing is known");
        let second = Sums::add(Some(first), rates, begun + Duration::from_millis(100));
        assert_eq!(second.bytes, LinkBytes { htod: 100_000, dtoh: 300 });
        let third = Sums::add(Some(second), Rates { htod: 0, dtoh: 0 }, begun + Duration::from_millis(200));
        assert_eq!(third.bytes, second.bytes);
    }

    #[test]
    fn time_without_samples_adds_no_bytes() {
        let begun = Instant::now();
        let rates = Rates { htod: 1_000_000, dtoh: 0 };
        let first = Sums::add(None, rates, begun);
        let late = Sums::add(Some(first), rates, begun + Duration::from_mins(1));
        assert_eq!(late.bytes.htod, 0);
        assert_eq!(late.at, begun + Duration::from_mins(1));
    }

    #[test]
    fn missing_nvml_is_retried_rarely() {
        let sampler = Sampler::default();
        let gpu = GpuUuid([1; 16]);
        let deadline = Instant::now() + Duration::from_secs(20);
        while lock(&sampler.shared).failed.is_none() {
            assert_eq!(sampler.read(gpu), None);
            assert!(Instant::now() < deadline, "a library without such a GPU, or none, has to fail");
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(sampler.read(gpu), None);
        assert!(!lock(&sampler.shared).is_running);
    }
}
