//! Model of cDMA's compressing copy engine as a function of sizes: duration of a transfer, and
//! causes of waits. Data are packed where they are read from GPU memory, so that only packed bytes
//! occupy the engine's buffer and the link. The other direction is symmetrical.
//!
//! [`Engine::transfer_ns`] is the bound by the average ratio. [`Engine::stream`] simulates the
//! pieces in the buffer: data with a varying ratio can be slower than their average.

use std::collections::VecDeque;

use crate::Width;

/// Parameters of the hardware.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Engine {
    /// Maximum rate of reads from GPU memory, in bytes before packing per second.
    pub read_bytes_per_s: f64,
    /// Time from a read request to packed data in the buffer.
    pub latency_ns: f64,
    /// Buffer for requested data and for data that wait for the link.
    pub buffer_bytes: u64,
    /// Rate of the link, in packed bytes per second.
    pub link_bytes_per_s: f64,
}

/// Unit of reading and packing: a unit or a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Bytes before packing.
    pub raw_bytes: u64,
    /// Bytes on the link.
    pub packed_bytes: u64,
}

/// Result of a transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Transfer {
    /// Time from the first read to the last byte on the link.
    pub time_ns: f64,
    /// Packed bytes.
    pub link_bytes: u64,
    /// Idle time of the link after the first byte: reads were too slow.
    pub link_idle_ns: f64,
    /// Time in which the buffer was too full for a read request: the link was too slow, or the
    /// buffer too small.
    pub read_held_ns: f64,
    /// Peak of bytes in the buffer, with requests at their maximum size.
    pub peak_buffer_bytes: u64,
}

/// Releases of buffer bytes in order: time and bytes.
type ReleaseQueue = VecDeque<(f64, u64)>;

impl Engine {
    /// The paper's engine on `PCIe` 3.0 x16: the buffer holds the data that arrive within the
    /// latency. The figures are as commonly quoted and not checked against the paper's text.
    pub const PAPER: Self =
        Self { read_bytes_per_s: 200e9, latency_ns: 350.0, buffer_bytes: 70_000, link_bytes_per_s: 12.8e9 };

    /// Bytes before packing per second at a ratio, in the steady state.
    #[must_use]
    pub fn bytes_per_s(&self, ratio: f64) -> f64 {
        self.read_bytes_per_s.min(ratio * self.link_bytes_per_s)
    }

    /// Time of `raw_bytes` at a constant ratio.
    #[must_use]
    pub fn transfer_ns(&self, raw_bytes: u64, ratio: f64) -> f64 {
        raw_bytes as f64 / self.bytes_per_s(ratio) * 1e9 + self.latency_ns
    }

    /// Simulates these pieces, one after another. A request reserves the buffer for the worst case
    /// until its data are packed. A piece that is larger than the buffer passes it alone.
    pub fn stream(&self, width: Width, pieces: impl IntoIterator<Item = Piece>) -> Transfer {
        let mut transfer = Transfer::default();
        let (mut packed, mut sent) = (ReleaseQueue::new(), ReleaseQueue::new());
        let (mut read_at, mut link_free_at) = (0.0_f64, None::<f64>);
        let mut buffered_bytes = 0;
        for piece in pieces {
            let worst_bytes = width.payload_bound(piece.raw_bytes).unwrap_or(u64::MAX).max(piece.packed_bytes);
            let may_read_at = read_at;
            while let Some((at, bytes)) = next_release(&packed, &sent) {
                if at > read_at && worst_bytes <= self.buffer_bytes.saturating_sub(buffered_bytes) {
                    break;
                }
                let first = if packed.front() == Some(&(at, bytes)) { &mut packed } else { &mut sent };
                first.pop_front();
                buffered_bytes -= bytes;
                read_at = read_at.max(at);
            }
            transfer.read_held_ns += read_at - may_read_at;
            read_at += piece.raw_bytes as f64 / self.read_bytes_per_s * 1e9;
            let packed_at = read_at + self.latency_ns;
            let send_at = link_free_at.map_or(packed_at, |free_at| free_at.max(packed_at));
            transfer.link_idle_ns += link_free_at.map_or(0.0, |free_at| send_at - free_at);
            let done_at = send_at + piece.packed_bytes as f64 / self.link_bytes_per_s * 1e9;
            link_free_at = Some(done_at);
            buffered_bytes += worst_bytes;
            packed.push_back((packed_at, worst_bytes - piece.packed_bytes));
            sent.push_back((done_at, piece.packed_bytes));
            transfer.peak_buffer_bytes = transfer.peak_buffer_bytes.max(buffered_bytes);
            transfer.link_bytes += piece.packed_bytes;
            transfer.time_ns = done_at;
        }
        transfer
    }
}

/// The next release of either queue.
fn next_release(packed: &ReleaseQueue, sent: &ReleaseQueue) -> Option<(f64, u64)> {
    match (packed.front(), sent.front()) {
        (Some(packed), Some(sent)) => Some(if packed.0 <= sent.0 { *packed } else { *sent }),
        (one, other) => one.or(other).copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAPER: Engine = Engine::PAPER;

    fn units(count: usize, nonzero: u64) -> impl Iterator<Item = Piece> {
        std::iter::repeat_n(Piece { raw_bytes: 128, packed_bytes: 4 + 4 * nonzero }, count)
    }

    fn assert_within(found: f64, expected: f64, share: f64) {
        assert!((found / expected - 1.0).abs() < share, "{found} instead of {expected}");
    }

    #[test]
    fn a_transfer_takes_the_slower_of_reading_and_sending() {
        assert_within(PAPER.bytes_per_s(2.0), 25.6e9, 1e-9);
        assert_within(PAPER.bytes_per_s(32.0), 200e9, 1e-9);
        assert_within(PAPER.transfer_ns(12_800_000, 2.0), 500_350.0, 1e-9);
    }

    #[test]
    fn time_of_uniform_data_follows_from_the_ratio() {
        for nonzero in [2, 8, 16, 31, 32] {
            let transfer = PAPER.stream(Width::Four, units(100_000, nonzero));
            let ratio = 128.0 / (4.0 + 4.0 * nonzero as f64);
            assert_within(transfer.time_ns, PAPER.transfer_ns(12_800_000, ratio), 1e-3);
            assert_eq!(transfer.link_bytes, 100_000 * (4 + 4 * nonzero));
            assert!(transfer.link_idle_ns < 1.0, "{transfer:?}");
            assert!(transfer.read_held_ns > 0.0, "reads wait for the link");
        }
    }

    #[test]
    fn zeros_are_read_as_fast_as_the_buffer_has_room_for_the_worst_case() {
        let transfer = PAPER.stream(Width::Four, units(100_000, 0));
        // At most 530 units are requested at a time; each round takes 350 ns and a read.
        let expected = 100_000.0 / 530.0 * (350.0 + 0.64);
        assert_within(transfer.time_ns, expected, 0.01);
        assert!(transfer.time_ns > PAPER.transfer_ns(12_800_000, 32.0));
        assert!(transfer.link_idle_ns > 0.5 * transfer.time_ns);
    }

    #[test]
    fn the_buffer_is_never_overfull() {
        for nonzero in [0, 5, 16, 32] {
            assert!(PAPER.stream(Width::Four, units(10_000, nonzero)).peak_buffer_bytes <= PAPER.buffer_bytes);
        }
    }

    #[test]
    fn long_stretches_of_zeros_starve_the_link_though_the_average_would_not() {
        let stretches = (0..10).flat_map(|_| units(20_000, 32).chain(units(200_000, 0)));
        let transfer = PAPER.stream(Width::Four, stretches);
        let ratio = 11.0 * 128.0 / (132.0 + 10.0 * 4.0);
        assert!(ratio * PAPER.link_bytes_per_s < PAPER.read_bytes_per_s);
        let bound = PAPER.transfer_ns(10 * 220_000 * 128, ratio);
        assert!(transfer.time_ns > 1.2 * bound, "{} of {bound}", transfer.time_ns);
        assert_within(transfer.time_ns - transfer.link_idle_ns, bound, 0.01);
    }

    #[test]
    fn a_piece_larger_than_the_buffer_goes_alone() {
        let piece = Piece { raw_bytes: 1 << 20, packed_bytes: 1 << 20 };
        let transfer = PAPER.stream(Width::Four, [piece, piece]);
        assert_eq!(transfer.link_bytes, 2 << 20);
        assert!(transfer.read_held_ns > 0.0);
    }

    #[test]
    fn nothing_takes_no_time() {
        assert_eq!(PAPER.stream(Width::Four, []), Transfer::default());
    }
}
