//! Facts about GPUs from NVIDIA's management library.
//!
//! The library queries the GPU's driver, which may hang for good, in a state in which a thread
//! cannot be ended. One thread therefore makes one query at a time, and no other waits for it.
//! Without a reply in time, the GPU is shown with its other known facts.
//!
//! The library is open only while a process uses a GPU: an open library prevents an unload of the
//! driver, and the sleep of a GPU.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::{OsStr, OsString},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{self, Receiver, SyncSender},
    },
    thread,
    time::{Duration, Instant},
};

use model::GpuUuid;
use nvml_wrapper::{Device, Nvml as Library, error::NvmlError};

/// File name of the library in the driver's packages; the one without a number comes with
/// development packages only.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// Interval of queries of used memory.
const EVERY: Duration = Duration::from_secs(5);
/// Interval of attempts to open it.
const RETRY: Duration = Duration::from_mins(1);
/// Duration after which a query counts as hung. An older reply is no evidence of the memory in use
/// now.
const DEADLINE: Duration = Duration::from_secs(15);

/// Facts about one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) index: Option<u32>,
    pub(crate) name: Option<String>,
    pub(crate) pci_address: Option<String>,
    pub(crate) memory_bytes: Option<u64>,
    /// Memory used by managed memory, everything else, and the driver itself.
    pub(crate) memory_used_bytes: Option<u64>,
    /// Rate of its `PCIe` link at the highest speed of GPU and node.
    pub(crate) link_bytes_per_second: Option<u64>,
}

/// Queries of the library.
#[derive(Debug)]
pub(crate) struct Nvml {
    library: OsString,
    /// Thread, after the first query.
    thread: Option<SyncSender<BTreeSet<GpuUuid>>>,
    shared: Arc<Mutex<Shared>>,
    /// GPUs of the last query, and its time.
    last_query: (BTreeSet<GpuUuid>, Option<Instant>),
    /// Whether a warning of its hang was logged.
    warned: bool,
}

#[derive(Debug, Default)]
struct Shared {
    facts: BTreeMap<GpuUuid, (Facts, Instant)>,
    /// Whether a query is in progress.
    is_busy: bool,
    /// Error of the last query.
    error: Option<String>,
}

impl Default for Nvml {
    fn default() -> Self {
        Self::of(OsStr::new(LIBRARY))
    }
}

impl Nvml {
    fn of(library: &OsStr) -> Self {
        Self {
            library: library.to_owned(),
            thread: None,
            shared: Arc::default(),
            last_query: (BTreeSet::new(), None),
            warned: false,
        }
    }

    /// Queries the GPUs in use, if that is due. To be called often; without GPUs it closes the
    /// library.
    pub(crate) fn ask(&mut self, in_use: impl IntoIterator<Item = GpuUuid>, now: Instant) {
        let in_use: BTreeSet<_> = in_use.into_iter().collect();
        let (before, last_query) = &self.last_query;
        let age = last_query.map(|last_query| now.saturating_duration_since(last_query));
        let mut shared = lock(&self.shared);
        if shared.is_busy {
            if age.is_some_and(|age| age > DEADLINE) && !std::mem::replace(&mut self.warned, true) {
                tracing::warn!("NVML does not respond: GPU indices and memory in use may be unknown");
            }
            return;
        }
        let is_due = match age {
            None => !in_use.is_empty(),
            Some(age) if shared.error.is_some() => age >= RETRY && !in_use.is_empty(),
            Some(age) => *before != in_use || (age >= EVERY && !in_use.is_empty()),
        };
        if !is_due {
            return;
        }
        shared.is_busy = true;
        drop(shared);
        self.last_query = (in_use.clone(), Some(now));
        if !self.send(in_use) {
            lock(&self.shared).is_busy = false;
        }
    }

    fn send(&mut self, question: BTreeSet<GpuUuid>) -> bool {
        let thread = match &self.thread {
            Some(thread) => thread,
            None => match start(self.library.clone(), Arc::clone(&self.shared)) {
                Ok(thread) => self.thread.insert(thread),
                Err(error) => {
                    tracing::warn!("no thread to ask NVML: {error}");
                    return false;
                }
            },
        };
        // It accepts no query before it has answered the last, so there is room.
        thread.try_send(question).is_ok()
    }

    /// Known facts about a GPU.
    pub(crate) fn facts(&self, gpu: GpuUuid, now: Instant) -> Option<Facts> {
        let (facts, read) = lock(&self.shared).facts.get(&gpu)?.clone();
        let is_fresh = now.saturating_duration_since(read) <= DEADLINE;
        Some(Facts { memory_used_bytes: facts.memory_used_bytes.filter(|_| is_fresh), ..facts })
    }
}

fn start(library: OsString, shared: Arc<Mutex<Shared>>) -> std::io::Result<SyncSender<BTreeSet<GpuUuid>>> {
    let (ask, questions) = mpsc::sync_channel(1);
    thread::Builder::new().name("nvml".to_owned()).spawn(move || serve(&library, &questions, &shared))?;
    Ok(ask)
}

fn serve(library: &OsStr, questions: &Receiver<BTreeSet<GpuUuid>>, shared: &Mutex<Shared>) {
    let mut open = None;
    while let Ok(gpus) = questions.recv() {
        let result = read(&mut open, library, &gpus).map_err(|error| error.to_string());
        let mut shared = lock(shared);
        shared.is_busy = false;
        let read = Instant::now();
        match result {
            Ok(facts) => {
                shared.facts.extend(facts.into_iter().map(|(gpu, facts)| (gpu, (facts, read))));
                shared.error = None;
            }
            Err(error) => {
                if shared.error.as_ref() != Some(&error) {
                    tracing::info!("NVML is unavailable, so GPU indices and memory in use are unknown: {error}");
                }
                shared.error = Some(error);
            }
        }
    }
}

/// Runs a query. Closes the library if there are no GPUs, or if it fails, as it does after the
/// driver was reloaded.
fn read(
    open: &mut Option<Library>,
    library: &OsStr,
    gpus: &BTreeSet<GpuUuid>,
) -> Result<BTreeMap<GpuUuid, Facts>, NvmlError> {
    let nvml = match open.take() {
        nvml if gpus.is_empty() => return nvml.map_or(Ok(()), Library::shutdown).map(|()| BTreeMap::new()),
        Some(nvml) => nvml,
        None => Library::builder().lib_path(library).init()?,
    };
    let (mut facts, mut failure) = (BTreeMap::new(), None);
    for gpu in gpus {
        match nvml.device_by_uuid(gpu.to_string()).and_then(|device| facts_of(&device)) {
            Ok(found) => drop(facts.insert(*gpu, found)),
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(error) if facts.is_empty() => {
            // It has failed already.
            let _ = nvml.shutdown();
            Err(error)
        }
        _ => {
            *open = Some(nvml);
            Ok(facts)
        }
    }
}

/// Facts of a GPU. Fails if the GPU cannot be queried; single missing facts are unknown.
fn facts_of(device: &Device<'_>) -> Result<Facts, NvmlError> {
    let index = device.index()?;
    let memory = device.memory_info().ok();
    Ok(Facts {
        index: Some(index),
        name: device.name().ok(),
        pci_address: device.pci_info().ok().map(|pci| pci_address(&pci.bus_id)),
        memory_bytes: memory.as_ref().map(|memory| memory.total),
        memory_used_bytes: memory.map(|memory| memory.total.saturating_sub(memory.free)),
        link_bytes_per_second: link_bytes_per_second(device),
    })
}

fn link_bytes_per_second(device: &Device<'_>) -> Option<u64> {
    // Elsewhere it may be NVLink-C2C.
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    pcie_bytes_per_second(device.max_pcie_link_gen().ok()?, device.max_pcie_link_width().ok()?)
}

/// Rate of a `PCIe` link in each direction, from its transfers per lane and its line code.
fn pcie_bytes_per_second(generation: u32, lanes: u32) -> Option<u64> {
    let bits_per_lane: u64 = match generation {
        1 => 2_500_000_000 * 8 / 10,
        2 => 5_000_000_000 * 8 / 10,
        3 => 8_000_000_000 * 128 / 130,
        4 => 16_000_000_000 * 128 / 130,
        5 => 32_000_000_000 * 128 / 130,
        6 => 64_000_000_000 * 242 / 256,
        _ => return None,
    };
    (1..=32).contains(&lanes).then(|| bits_per_lane / 8 * u64::from(lanes))
}

/// PCI address in the kernel's format: NVML's domain has four more digits.
fn pci_address(bus_id: &str) -> String {
    let bus_id = bus_id.to_ascii_lowercase();
    let spare = bus_id.find(':').unwrap_or_default().saturating_sub(4);
    bus_id.get(bus_id.bytes().take(spare).take_while(|digit| *digit == b'0').count()..).unwrap_or_default().to_owned()
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
