//! Frames of a card that device memory takes, of which the driver's managed memory cannot use any.

use gpu::swgpu::{DeviceMemory, Gpu};

use crate::backend::window::charge;

/// Size of a frame.
const FRAME_BYTES: u64 = 2 << 20;

/// Frames that are taken: as many as the charged bytes fill.
#[derive(Default)]
pub(super) struct Frames {
    charged_bytes: u64,
    taken: Vec<DeviceMemory>,
}

impl Frames {
    /// Takes what an allocation needs beyond the frames that are there; the driver evicts for it.
    ///
    /// Returns whether the card has so many.
    pub(super) fn take(&mut self, gpu: &Gpu, bytes: u64) -> bool {
        let charged_bytes = self.charged_bytes.saturating_add(charge(bytes));
        let needed = usize::try_from(charged_bytes.div_ceil(FRAME_BYTES)).unwrap_or(usize::MAX);
        let before = self.taken.len();
        while self.taken.len() < needed {
            let Ok(frame) = gpu.alloc(FRAME_BYTES) else {
                self.free(gpu, before);
                return false;
            };
            self.taken.push(frame);
        }
        self.charged_bytes = charged_bytes;
        true
    }

    /// Gives back what no allocation needs any more.
    pub(super) fn give(&mut self, gpu: &Gpu, bytes: u64) {
        self.charged_bytes = self.charged_bytes.saturating_sub(charge(bytes));
        self.free(gpu, usize::try_from(self.charged_bytes.div_ceil(FRAME_BYTES)).unwrap_or(usize::MAX));
    }

    fn free(&mut self, gpu: &Gpu, count: usize) {
        for frame in self.taken.drain(count.min(self.taken.len())..) {
            // Fails only for a frame that is not taken.
            let _ = gpu.free(&frame);
        }
    }
}
