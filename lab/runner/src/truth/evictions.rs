//! Evictions by process: the software GPUs' frame ledgers, if they are complete.

use super::Counted;
use crate::{
    figures::{EVICTED_BYTES, EVICTED_BYTES_CAUSED, EVICTIONS, Truth},
    sys::ledger::{Ledger, Taken, Taker},
};

const FAULT_MIGRATIONS: &str =
    "a fault took memory back from a GPU, which the ledger of frames does not tell from evictions";
const INCOMPLETE: &str = "the ledger of frames does not have all evictions: some frames that were left are still free";
const PAGE_TABLES: &str = "the driver took a frame for page tables, of whose memory the ledger does not say";

/// Evictions by victim and taker of frames.
pub(super) struct Evictions<'a> {
    gpus: &'a [Counted],
    /// Reason why they are unknown.
    unknown: Option<&'static str>,
}

impl<'a> Evictions<'a> {
    /// Evictions by the ledgers. `evicted_bytes`: the driver's count over all GPUs. `unknown`:
    /// reason why even that is unknown.
    pub(super) fn new(gpus: &'a [Counted], evicted_bytes: Option<u64>, unknown: Option<&'static str>) -> Self {
        let has_fault_migrations = gpus.iter().any(|gpu| gpu.driver.fault_pages_out > 0);
        let mut evictions = Self { gpus, unknown: unknown.or(has_fault_migrations.then_some(FAULT_MIGRATIONS)) };
        if evicted_bytes != Some(evictions.sum(|_, _| true).copied_out_bytes) {
            evictions.unknown = evictions.unknown.or(Some(INCOMPLETE));
        }
        evictions
    }

    /// Ledger of a GPU, or the reason why its evictions are unknown.
    pub(super) fn ledger_of(&self, gpu: &'a Counted) -> Result<&'a Ledger, &'static str> {
        self.unknown.map_or(Ok(&gpu.ledger), Err)
    }

    /// Adds the evictions of a process's memory, and those induced by it.
    pub(super) fn set_process(&self, truth: &mut Truth, pid: u32) {
        if let Some(unknown) = self.unknown {
            for field in [&EVICTED_BYTES, &EVICTED_BYTES_CAUSED, &EVICTIONS] {
                truth.waive(field, unknown);
            }
            return;
        }
        let lost = self.sum(|victim, _| victim == pid);
        truth.figures.set(&EVICTED_BYTES, lost.copied_out_bytes);
        truth.figures.set(&EVICTIONS, lost.frames);
        let took = |taker| matches!(taker, Taker::Managed { pid: taker_pid } | Taker::Unmanaged { pid: taker_pid } if taker_pid == pid);
        truth.figures.set(&EVICTED_BYTES_CAUSED, self.sum(|_, taker| took(taker)).copied_out_bytes);
        if self.sum(|_, taker| taker == Taker::Driver).frames > 0 {
            truth.waive(&EVICTED_BYTES_CAUSED, PAGE_TABLES);
        }
    }

    /// Adds the number of all evictions on these GPUs.
    pub(super) fn set_total(&self, truth: &mut Truth) {
        match self.unknown {
            Some(unknown) => truth.waive(&EVICTIONS, unknown),
            None => truth.figures.set(&EVICTIONS, self.sum(|_, _| true).frames),
        }
    }

    fn sum(&self, counts: impl Fn(u32, Taker) -> bool) -> Taken {
        let rows = self.gpus.iter().flat_map(|gpu| &gpu.ledger);
        let mut sum = Taken::default();
        for ((_, _), taken) in rows.filter(|((victim, taker), _)| counts(*victim, *taker)) {
            sum.frames += taken.frames;
            sum.copied_out_bytes += taken.copied_out_bytes;
        }
        sum
    }
}
