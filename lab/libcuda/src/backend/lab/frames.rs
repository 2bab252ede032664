//! Frames of a card that device memory takes, of which the driver's managed memory cannot use any.

use gpu::swgpu::{DeviceMemory, Gpu};

/// Size of a frame.
const FRAME_BYTES: u64 = 2 << 20;
/// Device memory is charged in multiples of this.
const CHARGE_BYTES: u64 = 512;

/// Frames that are taken: as many as the charged bytes fill.
#[derive(Default)]
pub(super) struct Frames {
    charged_bytes: u64,
    taken: Vec<DeviceMemory>,
}

const fn charge(bytes: u64) -> u64 {
    if bytes == 0 { CHARGE_BYTES } else { bytes.div_ceil(CHARGE_BYTES).saturating_mul(CHARGE_BYTES) }
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
            match gpu.alloc(FRAME_BYTES) {
                Ok(frame) => self.taken.push(frame),
                Err(_) => {
                    self.free(gpu, before);
                    return false;
                }
            }
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
