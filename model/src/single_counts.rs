//! Table of the driver's counts that are one number each.

/// Calls `$then!` with the given tokens, followed by a row for each of the driver's counts that is one
/// number. A row has documentation, a field and a [`Quantity`](crate::Quantity): the count is null where
/// the source lacks that quantity. A count with a metric also has whose metric it is (`GPUS` or
/// `PROCESSORS`), its name and its help.
///
/// [`Counters`](crate::Counters), the bodies of the API and the metrics take their fields from here: a
/// new count is a row, and an arm of the ledger's `tally` for its kind.
#[macro_export]
macro_rules! single_counts {
    ($then:ident { $($before:tt)* }) => {
        $then! {
            { $($before)* }
            /// Bytes that became resident at the GPU without a copy, as on first touch. Counted where it is known how this driver keeps residency.
            populated_bytes: Populated, GPUS "uvm_populated_bytes_total"
                "Bytes that became resident at the GPU without a copy, as on the first touch of new memory. Absent where the driver cannot count them: see /api/v1/status.";
            /// Freed blocks of managed memory, of at most 2 MiB, as by `cudaFree` and at exit. 0 in a GPU's own counts: they belong to no GPU.
            freed_blocks: FreedBlocks;
            /// Chunks of at most 2 MiB evicted from GPU memory, also with nothing to copy.
            evictions: Evictions, GPUS "uvm_evictions_total"
                "Chunks of at most 2 MiB that the driver evicted from the GPU, also where nothing had to be copied. The bytes copied are in uvm_migrated_bytes_total, with cause=\"eviction\".";
            /// Evictions that needed memory for this process, of any process's chunks, its own included.
            induced_evictions: Evictions;
            /// Bytes evicted because this process needed memory, of any process's memory, its own included.
            induced_eviction_bytes: EvictionPairs;
            /// Replays after fault batches that held faults of it.
            replays: Replays, GPUS "uvm_replays_total"
                "Replays after fault batches, by which the driver makes the GPU retry faulted accesses. Batches at which a process leaves the GPU have none.";
            /// Pages that the driver found to be thrashing, once an episode. It does not see thrashing by evictions.
            thrashing_pages: ThrashingPages, PROCESSORS "uvm_thrashing_pages_total"
                "Pages that the driver found to be thrashing between processors, once an episode, at the first GPU involved. It does not see thrashing by evictions.";
            /// Times that the driver throttled a processor's access to a thrashing page.
            throttles: Throttles, PROCESSORS "uvm_throttles_total"
                "Times that the driver throttled a processor at a thrashing page.";
            /// Sum of the time throttled, in nanoseconds, of throttles whose end was seen.
            throttled_ns: ThrottledTime;
            /// Moves of blocks of ordinary memory to the processor, under HMM. Of such memory, faults and copies are counted, and nothing else. Only in totals: their
            /// process is unknown.
            hmm_moves: Populated, PROCESSORS "uvm_hmm_moves_total"
                "Moves of blocks of ordinary memory to the processor, under HMM. Of such memory, faults and copies are counted; populated, resident and evicted memory is not counted. At 0, no memory is missing from the populated, resident and evicted figures.";
        }
    };
}
