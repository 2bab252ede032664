//! Distribution of faults over the parts of a range.

/// Number of parts counted. In a larger range, a part is several adjacent blocks.
const PARTS: usize = 64;
/// Maximum size of a hot set as 1 / this of the parts, with at least the remaining share of the
/// faults.
const HOT_PARTS: usize = 4;
const HOT_SHARE_MIN: f32 = 0.7;
/// Count at which all are halved: older faults have less weight.
const FAULTS_MAX: u16 = 1024;
/// Minimum of parts and of faults for a statement.
const PARTS_MIN: usize = 8;
const FAULTS_MIN: u32 = 128;

/// Distribution of faults.
#[derive(Clone, Debug)]
pub(super) struct Spread {
    /// First block of the first part; `None` before the first fault.
    base: Option<u64>,
    /// Blocks of a part, as a power of two.
    doublings: u32,
    faults: [u16; PARTS],
}

impl Default for Spread {
    fn default() -> Self {
        Self { base: None, doublings: 0, faults: [0; PARTS] }
    }
}

impl Spread {
    /// Adds faults on a block.
    pub(super) fn add(&mut self, block: u64, faults: u32) {
        // With room below as well as above: a downward walk would restart at each step otherwise.
        let base = *self.base.get_or_insert(block.saturating_sub(PARTS as u64 / 2));
        let Some(mut distance) = block.checked_sub(base).map(|distance| distance >> self.doublings) else {
            *self = Self { base: Some(block.saturating_sub((base - block).saturating_mul(2))), ..Self::default() };
            return self.add(block, faults);
        };
        while distance >= PARTS as u64 {
            self.double();
            distance /= 2;
        }
        let part = usize::try_from(distance).ok().and_then(|part| self.faults.get_mut(part));
        if let Some(part) = part {
            *part = part.saturating_add(u16::try_from(faults).unwrap_or(u16::MAX));
            if *part > FAULTS_MAX {
                self.faults.iter_mut().for_each(|faults| *faults /= 2);
            }
        }
    }

    /// Doubles the size of the parts.
    fn double(&mut self) {
        let mut doubled = [0; PARTS];
        for (both, pair) in doubled.iter_mut().zip(self.faults.chunks(2)) {
            *both = pair.iter().fold(0_u16, |sum, faults| sum.saturating_add(*faults));
        }
        self.faults = doubled;
        self.doublings += 1;
    }

    /// Share of the faults in a small part of the range, if it has most of them.
    pub(super) fn hot(&self) -> Option<f32> {
        let first = self.faults.iter().position(|faults| *faults > 0)?;
        let last = self.faults.iter().rposition(|faults| *faults > 0)?;
        let mut parts = self.faults.get(first..=last)?.to_vec();
        let total: u32 = parts.iter().map(|faults| u32::from(*faults)).sum();
        if parts.len() < PARTS_MIN || total < FAULTS_MIN {
            return None;
        }
        parts.sort_unstable_by(|one, other| other.cmp(one));
        let hot = parts.iter().take(parts.len() / HOT_PARTS);
        let share = hot.map(|faults| u32::from(*faults)).sum::<u32>() as f32 / total as f32;
        (share >= HOT_SHARE_MIN).then_some(share)
    }
}
