//! Facts of NVIDIA's management library about GPUs.
//!
//! It asks the GPU's own driver, which may hang for good, in a state in which a thread cannot even be ended. So one thread asks, one question at a
//! time, and nobody waits for it: without an answer in time the GPU is shown with what else is known of it.
//!
//! The library is open only while a process uses a GPU: open it keeps the driver from being unloaded, and a GPU from going to sleep.

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

/// Under this name it comes with the driver; the one without a number only with packages for development.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// Interval of queries of used memory.
const EVERY: Duration = Duration::from_secs(5);
/// Interval of attempts to open it.
const RETRY: Duration = Duration::from_mins(1);
/// A question that takes longer hangs, as far as anyone can tell. An answer that is older tells nothing of the memory that is taken now.
const DEADLINE: Duration = Duration::from_secs(15);

/// Facts about one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) index: Option<u32>,
    pub(crate) name: Option<String>,
    pub(crate) pci_address: Option<String>,
    pub(crate) memory_bytes: Option<u64>,
    /// By managed memory, everything else, and the driver itself.
    pub(crate) memory_used_bytes: Option<u64>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Nvml {
    library: OsString,
    /// Once anybody asked.
    thread: Option<SyncSender<BTreeSet<GpuUuid>>>,
    shared: Arc<Mutex<Shared>>,
    /// GPUs of the last query, and its time.
    asked: (BTreeSet<GpuUuid>, Option<Instant>),
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
            asked: (BTreeSet::new(), None),
            warned: false,
        }
    }

    /// Asks about the GPUs that are in use, if that is due. To be called often; without any it lets go of the library.
    pub(crate) fn ask(&mut self, in_use: impl IntoIterator<Item = GpuUuid>, now: Instant) {
        let in_use: BTreeSet<_> = in_use.into_iter().collect();
        let (before, asked) = &self.asked;
        let age = asked.map(|asked| now.saturating_duration_since(asked));
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
        self.asked = (in_use.clone(), Some(now));
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
        // It takes no other question before it has answered the last, so there is room.
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
    thread::Builder::new().name("nvml".to_owned()).spawn(move || answer(&library, &questions, &shared))?;
    Ok(ask)
}

fn answer(library: &OsStr, questions: &Receiver<BTreeSet<GpuUuid>>, shared: &Mutex<Shared>) {
    let mut open = None;
    while let Ok(gpus) = questions.recv() {
        let answer = read(&mut open, library, &gpus).map_err(|error| error.to_string());
        let mut shared = lock(shared);
        shared.is_busy = false;
        let read = Instant::now();
        match answer {
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

/// Closes the library where there is nothing to ask, or where it fails, as it does after the driver was loaded again.
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

/// Fails where the GPU cannot be asked; what it alone does not tell is not known.
fn facts_of(device: &Device<'_>) -> Result<Facts, NvmlError> {
    let index = device.index()?;
    let memory = device.memory_info().ok();
    Ok(Facts {
        index: Some(index),
        name: device.name().ok(),
        pci_address: device.pci_info().ok().map(|pci| pci_address(&pci.bus_id)),
        memory_bytes: memory.as_ref().map(|memory| memory.total),
        memory_used_bytes: memory.map(|memory| memory.total.saturating_sub(memory.free)),
    })
}

/// As the kernel writes it: NVML gives the domain four more digits.
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
