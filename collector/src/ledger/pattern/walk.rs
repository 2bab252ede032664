//! Movement along a line: one way, back and forth, or cyclic.

/// Factor of earlier weights at each move: the result rests on the last 64 or so.
const KEEPS: f32 = 1.0 - 1.0 / 64.0;
/// Minimum length of a return to the start, as a share of the pass.
const BACK: f32 = 0.4;
/// Minimum moves of a pass that can be returned from.
const WAY_MIN: u32 = 5;
/// The same for a return that does not happen by chance.
const WAY_MIN_FOR_CERTAIN: u32 = 1;
/// Minimum length of a complete pass, as a share of the one before.
const WHOLE: f32 = 0.9;
/// Share of recent turns above which apparent returns are chance.
const TURNS_MAX: f32 = 0.4;

/// Movement between places.
#[derive(Clone, Debug, Default)]
pub(super) struct Walk {
    moves: u64,
    /// Returns beyond chance.
    certain: u64,
    /// Recent moves, and turns among them. Older ones have less weight.
    recent: f32,
    turned: f32,
    is_downwards: Option<bool>,
    /// Start of this pass, its number of moves, and its current place.
    began: u64,
    length: u32,
    at: u64,
    /// Length of the pass before the last return.
    way_before: u64,
    /// Number of returns to the begin.
    wraps: u32,
}

impl Walk {
    /// Records a move that may be chance.
    pub(super) fn moved(&mut self, from: u64, to: u64) {
        self.moves_on(from, to, WAY_MIN);
    }

    /// Records a move that is no chance.
    pub(super) fn moved_for_certain(&mut self, from: u64, to: u64) {
        self.certain += 1;
        self.moves_on(from, to, WAY_MIN_FOR_CERTAIN);
    }

    fn moves_on(&mut self, from: u64, to: u64, way_min: u32) {
        if from == to {
            return;
        }
        let is_downwards = to < from;
        let is_against = self.is_downwards.is_some_and(|way| way != is_downwards);
        let way = from.abs_diff(self.began);
        self.moves += 1;
        self.at = to;
        self.recent = self.recent * KEEPS + 1.0;
        self.turned *= KEEPS;
        if is_against && self.length >= way_min && to.abs_diff(from) as f32 >= way as f32 * BACK {
            (self.began, self.length, self.way_before) = (to, 0, way);
            self.wraps = self.wraps.saturating_add(1);
        } else if is_against {
            self.turned += 1.0;
            (self.began, self.length) = (from, 1);
            self.is_downwards = Some(is_downwards);
            if self.turns() > TURNS_MAX {
                self.wraps = 0;
            }
        } else {
            if self.is_downwards.is_none() {
                self.began = from;
            }
            self.length = self.length.saturating_add(1);
            self.is_downwards = Some(is_downwards);
        }
    }

    pub(super) const fn moves(&self) -> u64 {
        self.moves
    }

    pub(super) const fn certain(&self) -> u64 {
        self.certain
    }

    /// Share of turns among the recent moves.
    pub(super) fn turns(&self) -> f32 {
        if self.recent > 0.0 { self.turned / self.recent } else { 0.0 }
    }

    /// Current or last direction.
    pub(super) fn is_downwards(&self) -> bool {
        self.is_downwards.unwrap_or_default()
    }

    /// Whether it made the same complete pass twice.
    pub(super) fn is_cyclic(&self) -> bool {
        let is_whole = self.at.abs_diff(self.began) as f32 >= self.way_before as f32 * WHOLE;
        self.wraps >= 2 || self.wraps == 1 && is_whole
    }
}
