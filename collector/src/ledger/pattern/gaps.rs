//! Frequent distances, among any number of different ones.

/// Factor of earlier weights at each distance: the result rests on the last 256 or so.
const KEEPS: f32 = 1.0 - 1.0 / 256.0;
/// Maximum of distances counted. The rarest is replaced by a new one.
const KINDS: usize = 8;

/// Counts of distances.
#[derive(Clone, Debug, Default)]
pub(super) struct Gaps {
    count: u64,
    total: f32,
    /// Distances, and their weights.
    kinds: [(u64, f32); KINDS],
}

/// Distance common to nearly all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stride {
    /// Distance, more than 1. Fractional if two integers alternate.
    pub(super) places: f32,
    /// Share of the distances that fit.
    pub(super) share: f32,
}

impl Gaps {
    pub(super) fn add(&mut self, gap: u64) {
        self.count += 1;
        self.total = self.total * KEEPS + 1.0;
        for (_, weight) in &mut self.kinds {
            *weight *= KEEPS;
        }
        let known = self.kinds.iter().position(|(kind, weight)| *kind == gap && *weight > 0.0);
        let rarest = || self.kinds.iter().enumerate().min_by(|(_, one), (_, other)| one.1.total_cmp(&other.1));
        if let Some(place) = known.or_else(|| rarest().map(|(place, _)| place))
            && let Some(kind) = self.kinds.get_mut(place)
        {
            // A new one starts with weight 1, so that its frequency is never overestimated.
            *kind = if known.is_some() { (gap, kind.1 + 1.0) } else { (gap, 1.0) };
        }
    }

    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Share of distances up to a maximum, as a lower bound.
    pub(super) fn share_up_to(&self, most: u64) -> f32 {
        let near = self.kinds.iter().filter(|(kind, _)| *kind <= most);
        self.share(near.map(|(_, weight)| weight).sum())
    }

    /// Most frequent distance, with the more frequent of its neighbours; `None` if there is none.
    pub(super) fn stride(&self) -> Option<Stride> {
        let (commonest, weight) = *self.kinds.iter().max_by(|one, other| one.1.total_cmp(&other.1))?;
        let beside = self.kinds.iter().filter(|(kind, _)| kind.abs_diff(commonest) == 1);
        let (other, other_weight) = *beside.max_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or(&(commonest, 0.0));
        let together = weight + other_weight;
        let places = (commonest as f32 * weight + other as f32 * other_weight) / together;
        (commonest >= 2 && other >= 2 || places >= 1.9).then(|| Stride { places, share: self.share(together) })
    }

    fn share(&self, weight: f32) -> f32 {
        if self.total > 0.0 { weight / self.total } else { 0.0 }
    }
}
