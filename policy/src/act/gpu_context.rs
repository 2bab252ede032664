//! Processes at a GPU: figures that the views of all of them share.
//!
//! They are computed once for a scene. A process that looked at all others would make the interval grow with the
//! square of their number.

use std::{
    cell::OnceCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use model::{
    Block, BlockSums, Counters, GpuKey, GpuUuid, Memory, Party, Process, ProcessId, Snapshot, Verdict, VerdictKind,
    Verdicts, verdict::Victim,
};

/// Processes at a GPU.
#[derive(Debug, Default)]
pub(crate) struct GpuContext<'a> {
    /// Live processes with counts at the GPU, and their known blocks.
    pub(crate) processes: Vec<(&'a Process, &'a [Block])>,
    pub(crate) ids: Arc<BTreeSet<ProcessId>>,
    pub(crate) victims: Vec<Victim>,
    /// Managed memory at the GPU, of all processes.
    pub(crate) resident_bytes: u64,
    verdicts: BTreeMap<ProcessId, Vec<&'a Verdict>>,
    /// Bytes that arrived for all of the processes.
    arrived_bytes: u64,
    /// Bytes that each process evicted from all other parties.
    induced_eviction_bytes: BTreeMap<ProcessId, u64>,
    /// Bytes evicted, by evictor and victim.
    evictions: BTreeMap<ProcessId, BTreeMap<ProcessId, Evicted>>,
    /// Sums over the known blocks of each process at the GPU.
    blocks: BTreeMap<ProcessId, BlockSums>,
    demand: OnceCell<Demand>,
}

/// Bytes that one process evicted from another.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Evicted {
    pub(crate) in_window_bytes: u64,
    pub(crate) total_bytes: u64,
}

/// GPU memory in bytes that each process needs, as far as its blocks are known.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    /// Memory of the blocks in which anything has arrived.
    used: BTreeMap<ProcessId, u64>,
    /// Memory that the process reuses: refetched memory if it streams, otherwise all of its memory.
    hot: BTreeMap<ProcessId, u64>,
    hot_bytes: u64,
}

// === impl GpuContext ===

impl<'a> GpuContext<'a> {
    /// Processes at these GPUs. `memory`: known blocks of processes.
    pub(crate) fn all(
        gpus: impl Iterator<Item = GpuUuid>,
        snapshot: &'a Snapshot,
        verdicts: &'a Verdicts,
        memory: &'a BTreeMap<ProcessId, Memory>,
    ) -> BTreeMap<GpuUuid, Self> {
        let mut all: BTreeMap<GpuUuid, Self> = gpus.map(|gpu| (gpu, Self::default())).collect();
        let mut each = |key: GpuKey, add: &mut dyn FnMut(&mut Self)| {
            if let Some(gpu_context) = key.uuid().and_then(|gpu| all.get_mut(&gpu)) {
                add(gpu_context);
            }
        };
        for process in &snapshot.processes {
            for (key, resident) in &process.residency {
                each(*key, &mut |gpu_context| {
                    gpu_context.resident_bytes = gpu_context.resident_bytes.saturating_add(resident.bytes);
                });
            }
            if process.exited_at.is_none() {
                let memory = memory.get(&process.id);
                for (key, counters) in &process.gpus {
                    each(*key, &mut |gpu_context| gpu_context.add(process, memory, *key, counters));
                }
            }
        }
        for verdict in &verdicts.active {
            each(verdict.gpu, &mut |gpu_context| {
                gpu_context.verdicts.entry(verdict.process).or_default().push(verdict);
            });
        }
        for victim in &verdicts.victims {
            each(victim.gpu, &mut |gpu_context| {
                gpu_context.victims.push(*victim);
                let evicted =
                    gpu_context.evictions.entry(victim.evictor).or_default().entry(victim.victim).or_default();
                evicted.in_window_bytes = evicted.in_window_bytes.max(victim.bytes);
            });
        }
        for pair in snapshot.evictions.iter().filter(|pair| pair.victim != pair.evictor) {
            let Party::Process(evictor) = pair.evictor else { continue };
            each(pair.gpu, &mut |gpu_context| gpu_context.add_evicted(evictor, pair.victim, pair.bytes));
        }
        all
    }

    fn add(&mut self, process: &'a Process, memory: Option<&'a Memory>, key: GpuKey, counters: &Counters) {
        self.processes.push((process, memory.map(|memory| memory.blocks.as_slice()).unwrap_or_default()));
        if let Some(sums) = memory.and_then(|memory| memory.gpus.get(&key)) {
            self.blocks.insert(process.id, *sums);
        }
        Arc::make_mut(&mut self.ids).insert(process.id);
        self.arrived_bytes = self.arrived_bytes.saturating_add(arrived_bytes(counters));
    }

    fn add_evicted(&mut self, evictor: ProcessId, victim: Party, bytes: u64) {
        let total = self.induced_eviction_bytes.entry(evictor).or_default();
        *total = total.saturating_add(bytes);
        if let Party::Process(victim) = victim {
            let evicted = self.evictions.entry(evictor).or_default().entry(victim).or_default();
            evicted.total_bytes = evicted.total_bytes.saturating_add(bytes);
        }
    }

    /// Verdicts on a process at this GPU.
    pub(crate) fn verdicts(&self, process: ProcessId) -> &[&'a Verdict] {
        self.verdicts.get(&process).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether a process streams, by the active verdicts.
    pub(crate) fn streams(&self, process: ProcessId) -> bool {
        self.verdicts(process).iter().any(|verdict| verdict.kind == VerdictKind::Streaming)
    }

    /// Bytes that arrived at the GPU for all processes except this one.
    pub(crate) fn others_arrived_bytes(&self, process: &Process, key: GpuKey) -> u64 {
        self.arrived_bytes.saturating_sub(process.gpus.get(&key).map_or(0, arrived_bytes))
    }

    /// Bytes that a process evicted from all other parties.
    pub(crate) fn evicted_bytes(&self, evictor: ProcessId) -> u64 {
        self.induced_eviction_bytes.get(&evictor).copied().unwrap_or_default()
    }

    /// Victims of a process, and the bytes that it evicted from each.
    pub(crate) fn evicted_by(&self, evictor: ProcessId) -> impl Iterator<Item = (ProcessId, Evicted)> {
        let victims = self.evictions.get(&evictor).into_iter().flatten();
        victims.map(|(victim, evicted)| (*victim, *evicted))
    }

    /// Sums over the blocks of a process at this GPU; `None` if it has no known ones.
    pub(crate) fn blocks_of(&self, process: ProcessId) -> Option<&BlockSums> {
        self.blocks.get(&process)
    }

    /// Memory that the processes need, computed when first asked for. `key`: this GPU.
    pub(crate) fn demand(&self, key: GpuKey) -> &Demand {
        self.demand.get_or_init(|| Demand::of(self, key))
    }
}

/// Bytes that arrived at a GPU for a process, by its counts.
fn arrived_bytes(counters: &Counters) -> u64 {
    counters.bytes_htod.total().saturating_add(counters.populated_bytes)
}

// === impl Demand ===

impl Demand {
    fn of(gpu_context: &GpuContext<'_>, key: GpuKey) -> Self {
        let mut demand = Self::default();
        for (process, blocks) in &gpu_context.processes {
            let sums = gpu_context.blocks_of(process.id);
            demand.used.insert(process.id, sums.map_or(0, |sums| sums.used_bytes));
            let resident_bytes = process.residency.get(&key).map_or(0, |resident| resident.bytes);
            let hot = if gpu_context.streams(process.id) && !blocks.is_empty() {
                sums.map_or(0, |sums| sums.refetched_resident_bytes).min(resident_bytes)
            } else {
                resident_bytes
            };
            if hot > 0 {
                demand.hot.insert(process.id, hot);
                demand.hot_bytes = demand.hot_bytes.saturating_add(hot);
            }
        }
        demand
    }

    /// Memory that the other processes reuse, and the number of those that reuse any.
    pub(crate) fn hot_of_others(&self, process: ProcessId) -> (u64, u64) {
        let own = self.hot.get(&process);
        let others = self.hot.len().saturating_sub(usize::from(own.is_some()));
        (self.hot_bytes.saturating_sub(own.copied().unwrap_or_default()), others as u64)
    }

    /// Used memory of a process.
    pub(crate) fn used_bytes(&self, process: ProcessId) -> u64 {
        self.used.get(&process).copied().unwrap_or_default()
    }
}
