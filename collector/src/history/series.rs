//! Samples of successive slots, encoded in bytes: a busy one takes some 30, an idle stretch next to
//! none.

use std::collections::VecDeque;

use model::Sample;

/// Slots per chunk, the unit of removal.
const CHUNK_SLOTS: u64 = 256;
/// Code of a run; anything less is a sample, with a bit for each field that is not 0, or not as
/// before.
const IDLE: u8 = 0x80;
const MISSING: u8 = 0x81;
const RESIDENT: u8 = 1 << 6;

/// Encoded samples.
#[derive(Debug, Default)]
pub(super) struct Series {
    chunks: VecDeque<Chunk>,
    /// Number of the chunks' samples.
    bytes: usize,
}

#[derive(Debug)]
struct Chunk {
    /// Slot of its first sample.
    first: u64,
    slots: u64,
    samples: Vec<u8>,
    /// The current run, not yet in the chunks.
    run: Option<(u8, u64)>,
    /// Residency of the last sample; the first is relative to 0.
    resident: u64,
}

impl Series {
    /// Adds the sample of a slot, which follows all earlier ones, and removes those `slots_max` or
    /// more before it.
    pub(super) fn push(&mut self, slot: u64, sample: &Sample, slots_max: u64) {
        let is_new = self.chunks.back().is_none_or(|last| slot - last.first >= CHUNK_SLOTS);
        if is_new {
            if let Some(last) = self.chunks.back_mut() {
                self.bytes -= last.bytes();
                last.flush();
                last.samples.shrink_to_fit();
                self.bytes += last.bytes();
            }
            let chunk = Chunk { first: slot, slots: 0, samples: Vec::new(), run: None, resident: 0 };
            self.bytes += chunk.bytes();
            self.chunks.push_back(chunk);
        }
        if let Some(last) = self.chunks.back_mut() {
            self.bytes -= last.bytes();
            last.push(slot, sample);
            self.bytes += last.bytes();
        }
        while self.chunks.front().is_some_and(|first| first.end() + slots_max <= slot + 1) {
            self.give_up(1);
        }
    }

    fn give_up(&mut self, chunks: usize) {
        for chunk in self.chunks.drain(..chunks.min(self.chunks.len())) {
            self.bytes -= chunk.bytes();
        }
    }

    /// Removes the older half; all if little is left.
    pub(super) fn halve(&mut self) {
        self.give_up(self.chunks.len().div_ceil(2));
        if self.chunks.is_empty() {
            self.chunks = VecDeque::new();
        }
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// First slot with a sample.
    pub(super) fn first(&self) -> Option<u64> {
        self.chunks.front().map(|chunk| chunk.first)
    }

    /// Samples with their slots, oldest first, without missing ones.
    pub(super) fn samples(&self) -> impl Iterator<Item = (u64, Sample)> {
        self.chunks.iter().flat_map(Chunk::samples)
    }
}

impl Chunk {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.samples.capacity()
    }

    fn end(&self) -> u64 {
        self.first + self.slots
    }

    fn push(&mut self, slot: u64, sample: &Sample) {
        let missing = slot.saturating_sub(self.end());
        if missing > 0 {
            self.extend(MISSING, missing);
        }
        let fields = counted(sample);
        if fields == [0; 6] && sample.resident_bytes == self.resident {
            self.extend(IDLE, 1);
        } else {
            self.flush();
            let mut bits = fields.iter().enumerate().fold(0, |bits, (at, value)| bits | u8::from(*value > 0) << at);
            if sample.resident_bytes != self.resident {
                bits |= RESIDENT;
            }
            self.samples.push(bits);
            for value in fields.into_iter().filter(|value| *value > 0) {
                write(&mut self.samples, value);
            }
            if bits & RESIDENT != 0 {
                write(&mut self.samples, zigzag(sample.resident_bytes.wrapping_sub(self.resident)));
                self.resident = sample.resident_bytes;
            }
        }
        self.slots = slot - self.first + 1;
    }

    fn extend(&mut self, kind: u8, slots: u64) {
        match &mut self.run {
            Some((same, length)) if *same == kind => *length += slots,
            _ => {
                self.flush();
                self.run = Some((kind, slots));
            }
        }
    }

    fn flush(&mut self) {
        if let Some((kind, length)) = self.run.take() {
            self.samples.push(kind);
            write(&mut self.samples, length);
        }
    }

    fn samples(&self) -> impl Iterator<Item = (u64, Sample)> {
        let (mut bytes, mut slot, mut resident) = (self.samples.as_slice(), self.first, 0_u64);
        let mut open = self.run;
        // Rest of the current run.
        let mut idle = 0_u64;
        std::iter::from_fn(move || {
            while idle == 0 {
                let Some((kind, rest)) = bytes.split_first() else {
                    let (kind, slots) = open.take()?;
                    match kind {
                        IDLE => idle = slots,
                        _ => slot += slots,
                    }
                    continue;
                };
                bytes = rest;
                match *kind {
                    IDLE => idle = read(&mut bytes),
                    MISSING => slot += read(&mut bytes),
                    bits => {
                        let mut field = |at: u8| if bits & 1 << at != 0 { read(&mut bytes) } else { 0 };
                        let mut sample = Sample {
                            fault_entries: field(0),
                            cpu_faults: field(1),
                            bytes_htod: field(2),
                            bytes_dtoh: field(3),
                            evicted_bytes: field(4),
                            refetched_bytes: field(5),
                            resident_bytes: 0,
                        };
                        if bits & RESIDENT != 0 {
                            resident = resident.wrapping_add(unzigzag(read(&mut bytes)));
                        }
                        sample.resident_bytes = resident;
                        slot += 1;
                        return Some((slot - 1, sample));
                    }
                }
            }
            idle -= 1;
            slot += 1;
            Some((slot - 1, Sample { resident_bytes: resident, ..Sample::default() }))
        })
    }
}

/// Fields in the order of their bits.
const fn counted(sample: &Sample) -> [u64; 6] {
    let Sample { fault_entries, cpu_faults, bytes_htod, bytes_dtoh, evicted_bytes, refetched_bytes, resident_bytes: _ } =
        *sample;
    [fault_entries, cpu_faults, bytes_htod, bytes_dtoh, evicted_bytes, refetched_bytes]
}

/// Zigzag code, a small number for a difference of either sign.
const fn zigzag(difference: u64) -> u64 {
    let signed = difference.cast_signed();
    ((signed << 1) ^ (signed >> 63)).cast_unsigned()
}

const fn unzigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

/// Writes seven bits per byte, the lowest first; the eighth is set if more follow.
fn write(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
}

fn read(bytes: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0_u64, 0);
    while let Some((byte, rest)) = bytes.split_first() {
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples_of(series: &Series) -> Vec<(u64, Sample)> {
        series.samples().collect()
    }

    fn faults(fault_entries: u64) -> Sample {
        Sample { fault_entries, ..Sample::default() }
    }

    #[test]
    fn samples_round_trip_and_gaps_stay_missing() {
        let busy = Sample {
            fault_entries: 1,
            cpu_faults: u64::MAX,
            bytes_htod: 127,
            bytes_dtoh: 128,
            evicted_bytes: 1 << 40,
            refetched_bytes: 3,
            resident_bytes: u64::MAX,
        };
        let resident = |resident_bytes| Sample { resident_bytes, ..Sample::default() };
        let samples = [
            (7, resident(0)),
            (8, busy),
            (9, resident(u64::MAX)),
            (10, resident(u64::MAX)),
            (14, resident(u64::MAX)),
            (15, resident(5)),
            (16, Sample { resident_bytes: 5, ..faults(9) }),
            (18, resident(4)),
            (19, resident(4)),
        ];
        let mut series = Series::default();
        for (slot, sample) in &samples {
            series.push(*slot, sample, 3600);
        }
        assert_eq!(samples_of(&series), samples);
        assert_eq!(series.first(), Some(7));
    }

    #[test]
    fn chunks_are_independent_of_earlier_ones() {
        let mut series = Series::default();
        let sample = |slot| Sample { resident_bytes: slot * 1000, ..faults(slot % 3) };
        for slot in 0..2000 {
            series.push(slot, &sample(slot), 500);
        }
        let samples_of = samples_of(&series);
        assert!(
            samples_of.len() as u64 >= 500 && (samples_of.len() as u64) < 500 + 2 * CHUNK_SLOTS,
            "{}",
            samples_of.len()
        );
        assert!(samples_of.iter().all(|(slot, samples_of)| *samples_of == sample(*slot)));
        assert_eq!(samples_of.last().unwrap().0, 1999);
    }

    #[test]
    fn samples_before_a_long_gap_are_dropped() {
        let mut series = Series::default();
        series.push(1, &faults(1), 3600);
        series.push(1_000_000_000, &faults(2), 3600);
        assert_eq!(samples_of(&series), [(1_000_000_000, faults(2))]);
    }

    #[test]
    fn idle_slots_take_little_memory() {
        let mut series = Series::default();
        for slot in 0..3600 {
            series.push(slot, &Sample { resident_bytes: 1 << 30, ..Sample::default() }, 3600);
        }
        assert_eq!(samples_of(&series).len(), 3600);
        assert!(series.bytes() < 2048, "{} bytes", series.bytes());
    }

    #[test]
    fn halving_frees_the_older_half() {
        let mut series = Series::default();
        for slot in 0..1024 {
            series.push(slot, &faults(slot), 3600);
        }
        let bytes = series.bytes();
        series.halve();
        assert_eq!((series.first(), series.bytes() < bytes * 2 / 3), (Some(512), true));
        for _ in 0..3 {
            series.halve();
        }
        assert_eq!((samples_of(&series), series.bytes()), (vec![], 0));
    }
}
