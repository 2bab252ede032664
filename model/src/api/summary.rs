//! Processes in short: what a listing shows of each, without breakdowns. With many processes and GPUs that is a tenth of the whole.

use serde::{Deserialize, Serialize};

use super::{
    Counts, DecisionSummary, Diagnosis, Distribution, Evictor, GpuId, Owner, Process, ProcessGpu, Residency, Reuse,
    VerdictSummary,
};

/// Body of `GET /api/v1/processes/summary`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProcessSummaries {
    /// Time of the snapshot. A rate is the difference of two responses over the time between them.
    pub time: String,
    /// As in the listing of processes.
    pub processes: Vec<ProcessSummary>,
    /// Cursor of the next page, for the parameter `continue`. Null on the last page.
    pub r#continue: Option<String>,
    /// Processes that follow this page.
    pub remaining: u64,
}

/// One process in short. Fields are those of the process of the same name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ProcessSummary {
    /// Process id.
    pub pid: u32,
    /// Start time in clock ticks since boot; with `pid` it names the process.
    pub start_ticks: u64,
    /// Time of its start.
    pub started_at: Option<String>,
    /// Short name (comm).
    pub name: String,
    /// Real user id.
    pub uid: u32,
    /// User name.
    pub user: Option<String>,
    /// Cgroup path.
    pub cgroup: Option<String>,
    /// `running` or `exited`.
    pub state: String,
    /// Time of its exit.
    pub exited_at: Option<String>,
    /// Bytes of managed memory it has mapped; null if that could not be read.
    pub managed_bytes: Option<u64>,
    /// Owner of the process.
    pub owner: Owner,
    /// Bytes of it resident in GPU memory, over all GPUs: an estimate. Null where unknown.
    pub resident: Option<Residency>,
    /// Reuse of evicted and reclaimed memory, over all GPUs.
    pub reuse: Reuse,
    /// Foremost concern; null if there is none.
    pub diagnosis: Option<Diagnosis>,
    /// Active verdicts, worst first.
    pub verdicts: Vec<VerdictSummary>,
    /// Process that evicted most of its memory in the last window; null if it was none but itself.
    pub victim_of: Option<Evictor>,
    /// Open decisions, the newest first.
    pub decisions: Vec<DecisionSummary>,
    /// Sums over all GPUs, and CPU faults.
    #[serde(flatten)]
    pub counts: CountsSummary,
    /// The GPUs that it was seen on.
    pub gpus: Vec<GpuId>,
}

/// Fields of [`Counts`], without the breakdowns and most distributions.
macro_rules! counts_summary {
    ($($(#[$doc:meta])* $field:ident: $type:ty,)*) => {
        /// Sums of the counts.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        pub struct CountsSummary {
            $($(#[$doc])* pub $field: $type,)*
        }

        impl From<CountsSummary> for Counts {
            /// Breakdowns are empty.
            fn from(summary: CountsSummary) -> Self {
                let CountsSummary { $($field,)* } = summary;
                Self { $($field,)* ..Self::default() }
            }
        }
    };
}

counts_summary! {
    /// GPU fault entries, after the driver merged equal faults of a batch.
    fault_entries: u64,
    /// GPU faults before merging.
    fault_instances: u64,
    /// CPU faults on managed memory.
    cpu_faults: u64,
    /// Bytes copied from host to GPU.
    bytes_htod: u64,
    /// Bytes copied from GPU to host.
    bytes_dtoh: u64,
    /// Bytes received from another GPU.
    bytes_dtod: u64,
    /// Bytes evicted from GPU memory.
    evicted_bytes: u64,
    /// Bytes that became resident at the GPU with nothing to copy, as on first touch; null where that cannot be counted.
    populated_bytes: Option<u64>,
    /// Chunks of memory, of at most 2 MiB, evicted from GPU memory.
    evictions: u64,
    /// Evictions that needed memory for this process, of any process's chunks, its own included.
    induced_evictions: u64,
    /// Bytes copied out in `induced_evictions`.
    induced_eviction_bytes: u64,
    /// Fault batches that held faults of it.
    batches: u64,
    /// Nanoseconds that each of those batches took, from its first fault entry to its replay.
    batch_duration_ns: Distribution,
    /// Times that the GPU was told to try again after such a batch.
    replays: u64,
    /// Pages that the driver found to be thrashing. It does not see thrashing by evictions.
    thrashing_pages: u64,
    /// Times that the driver held a processor back from a thrashing page.
    throttles: u64,
    /// Sum of the time throttled, in nanoseconds.
    throttled_ns: u64,
    /// Mappings to memory that stays on another processor.
    remote_mappings: u64,
    /// Bytes so mapped; what is mapped again counts again.
    remote_mapped_bytes: u64,
    /// Calls of the application about its memory: prefetches and advice.
    api_calls: u64,
    /// Events that belong here and could not be counted.
    dropped_events: u64,
}

impl From<ProcessSummary> for Process {
    /// Breakdowns and the counts of each GPU are empty.
    fn from(summary: ProcessSummary) -> Self {
        let ProcessSummary {
            pid,
            start_ticks,
            started_at: started,
            name,
            uid,
            user,
            cgroup,
            state,
            exited_at: ended,
            managed_bytes,
            owner,
            resident,
            reuse,
            diagnosis,
            verdicts,
            victim_of,
            decisions,
            counts,
            gpus,
        } = summary;
        let gpus = gpus.into_iter().map(|id| ProcessGpu { id, ..ProcessGpu::default() });
        Self {
            pid,
            start_ticks,
            started_at: started,
            name,
            uid,
            user,
            cgroup,
            state,
            exited_at: ended,
            managed_bytes,
            owner,
            resident,
            reuse,
            diagnosis,
            verdicts,
            victim_of,
            decisions,
            counts: counts.into(),
            gpus: gpus.collect(),
        }
    }
}
