//! Software GPU's frame ledger: victims whose pages left a frame, and the next takers of the frame.
//! Layouts as in `lab/swgpu/swgpu_ioctl.h`.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use gpu::{Request, ioctl, swgpu::Gpu};

/// Maximum of pairs in the ledger.
const ROWS: usize = 1024;

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Row {
    victim_pid: u32,
    taker_pid: u32,
    taker: u32,
    reserved: u32,
    frames: u64,
    copied_out_bytes: u64,
}

#[repr(C)]
#[derive(Default)]
struct RawLedger {
    gpu: u32,
    capacity: u32,
    rows: u64,
    count: u32,
    left_out: u32,
    lost_bytes: u64,
}

const _: () = assert!(size_of::<Row>() == 32);
gpu::swgpu_requests! {
    RawLedger, 8, "SWGPU_IOC_LEDGER", 32;
}

/// Taker of a frame: a process, or the driver for page tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Taker {
    /// Process that took it for managed memory.
    Managed {
        pid: u32,
    },
    /// Process that took it for memory that is not managed.
    Unmanaged {
        pid: u32,
    },
    Driver,
}

/// Frames and bytes that a taker took from a victim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Number of frames, or parts of one, that changed hands.
    pub(crate) frames: u64,
    /// Bytes of the victim's pages in them that were copied out.
    pub(crate) copied_out_bytes: u64,
}

/// Ledger by the victim's process id and the taker, since the software GPU was loaded.
pub(crate) type Ledger = BTreeMap<(u32, Taker), Taken>;

/// Ledger of a GPU.
pub(crate) fn read(gpu: &Gpu) -> anyhow::Result<Ledger> {
    let mut rows = vec![Row::default(); ROWS];
    let address = rows.as_mut_ptr().expose_provenance() as u64;
    let mut request =
        RawLedger { gpu: gpu.number(), capacity: u32::try_from(ROWS)?, rows: address, ..RawLedger::default() };
    ioctl(gpu.file(), &mut request).with_context(|| format!("{} failed", RawLedger::NAME))?;
    if request.left_out > 0 {
        bail!("the frame ledger has {} pairs more than it can have", request.left_out);
    }
    let rows = rows.iter().take(request.count as usize);
    rows.map(|row| Ok(((row.victim_pid, row.taker()?), row.taken()))).collect()
}

impl Row {
    fn taker(&self) -> anyhow::Result<Taker> {
        match self.taker {
            0 => Ok(Taker::Managed { pid: self.taker_pid }),
            1 => Ok(Taker::Driver),
            2 => Ok(Taker::Unmanaged { pid: self.taker_pid }),
            other => bail!("the frame ledger knows a taker of kind {other}"),
        }
    }

    fn taken(&self) -> Taken {
        Taken { frames: self.frames, copied_out_bytes: self.copied_out_bytes }
    }
}

/// Difference to an earlier ledger.
pub(crate) fn since(now: &Ledger, before: &Ledger) -> Ledger {
    let since = |(pair, now): (&(u32, Taker), &Taken)| {
        let before = before.get(pair).copied().unwrap_or_default();
        let frames = now.frames.saturating_sub(before.frames);
        let copied_out_bytes = now.copied_out_bytes.saturating_sub(before.copied_out_bytes);
        (frames > 0 || copied_out_bytes > 0).then_some((*pair, Taken { frames, copied_out_bytes }))
    };
    now.iter().filter_map(since).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_has_only_additions() {
        let taken = |frames| Taken { frames, copied_out_bytes: frames * 2 };
        let pair = |taker| (7, Taker::Managed { pid: taker });
        let before = Ledger::from([(pair(1), taken(5)), (pair(2), taken(3))]);
        let now = Ledger::from([(pair(1), taken(5)), (pair(2), taken(4)), (pair(3), taken(2))]);
        assert_eq!(since(&now, &before), Ledger::from([(pair(2), taken(1)), (pair(3), taken(2))]));
    }
}
