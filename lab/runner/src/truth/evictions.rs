//! Evictions by process: the software GPUs' ledgers of frames, where these hold.

use super::Counted;
use crate::{
    figures::{EVICTED_BYTES, EVICTED_BYTES_CAUSED, EVICTIONS, Truth},
    sys::ledger::{Ledger, Taken, Taker},
};

const TAKEN_BACK: &str = "a fault took memory back from a GPU, which the ledger of frames does not tell from evictions";
const NOT_TAKEN: &str = "the ledger of frames does not have all evictions: some frames that were left are still free";
const PAGE_TABLES: &str = "the driver took a frame for page tables, of whose memory the ledger does not say";

/// Who lost frames, and who took them.
pub(super) struct Evictions<'a> {
    gpus: &'a [Counted],
    /// Why nobody can say.
    doubt: Option<&'static str>,
}

impl<'a> Evictions<'a> {
    /// `evicted_bytes`: by the driver's own count, over all GPUs. `doubt`: why even that is not known.
    pub(super) fn new(gpus: &'a [Counted], evicted_bytes: Option<u64>, doubt: Option<&'static str>) -> Self {
        let taken_back = gpus.iter().any(|gpu| gpu.driver.fault_pages_out > 0);
        let mut evictions = Self { gpus, doubt: doubt.or(taken_back.then_some(TAKEN_BACK)) };
        if evicted_bytes != Some(evictions.sum(|_, _| true).copied_out_bytes) {
            evictions.doubt = evictions.doubt.or(Some(NOT_TAKEN));
        }
        evictions
    }

    /// Who lost what to whom on a GPU, or why nobody can say.
    pub(super) fn ledger_of(&self, gpu: &'a Counted) -> Result<&'a Ledger, &'static str> {
        self.doubt.map_or(Ok(&gpu.ledger), Err)
    }

    /// What a process lost, and what was lost to it.
    pub(super) fn tell_process(&self, truth: &mut Truth, pid: u32) {
        if let Some(doubt) = self.doubt {
            for field in [&EVICTED_BYTES, &EVICTED_BYTES_CAUSED, &EVICTIONS] {
                truth.waive(field, doubt);
            }
            return;
        }
        let lost = self.sum(|victim, _| victim == pid);
        truth.figures.set(&EVICTED_BYTES, lost.copied_out_bytes);
        truth.figures.set(&EVICTIONS, lost.frames);
        let took = |taker| matches!(taker, Taker::Managed { pid: it } | Taker::Unmanaged { pid: it } if it == pid);
        truth.figures.set(&EVICTED_BYTES_CAUSED, self.sum(|_, taker| took(taker)).copied_out_bytes);
        if self.sum(|_, taker| taker == Taker::Driver).frames > 0 {
            truth.waive(&EVICTED_BYTES_CAUSED, PAGE_TABLES);
        }
    }

    /// How often somebody lost something, on these GPUs.
    pub(super) fn tell_all(&self, truth: &mut Truth) {
        match self.doubt {
            Some(doubt) => truth.waive(&EVICTIONS, doubt),
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
