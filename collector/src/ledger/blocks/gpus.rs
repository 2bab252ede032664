//! GPUs of one process: those that its VA spaces identify by an id, and the known ones. Blocks
//! refer to them by two bytes.

use std::collections::BTreeMap;

use model::{GpuKey, PeerReuse, Reuse};

use super::{
    super::Generation,
    resident::Resident,
    seen::{GpuIndex, Taken},
};

/// GPUs of a process, by index.
#[derive(Debug, Default)]
pub(super) struct Gpus(Vec<OfGpu>);

/// Sums of a GPU. Blocks may be forgotten, their sums are not.
#[derive(Debug)]
struct OfGpu {
    gpu: Gpu,
    reuse: Reuse,
    /// Blocks that it took from each other GPU: of as many as the VA space has at most.
    peers: BTreeMap<GpuIndex, u64>,
    /// Bytes taken back from them.
    peer_reclaimed_bytes: u64,
    /// Resident bytes there.
    resident: Resident,
    /// Whether residency was ever reported there.
    has_residency: bool,
}

impl OfGpu {
    fn new(gpu: Gpu) -> Self {
        Self {
            gpu,
            reuse: Reuse::default(),
            peers: BTreeMap::new(),
            peer_reclaimed_bytes: 0,
            resident: Resident::default(),
            has_residency: false,
        }
    }
}

/// The GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gpu {
    /// GPU of this id in a live VA space.
    Of(Generation, u32),
    Known(GpuKey),
}

impl Gpu {
    fn key(self, key: impl Fn(Generation, u32) -> GpuKey) -> GpuKey {
        match self {
            Self::Of(generation, id) => key(generation, id),
            Self::Known(key) => key,
        }
    }
}

impl Gpus {
    /// Index of the GPU with an id of a VA space. There is room for all GPUs of a machine, for
    /// thousands of VA spaces at once.
    pub(super) fn index(&mut self, generation: Generation, id: u32) -> GpuIndex {
        let gpu = Gpu::Of(generation, id);
        // From the end: VA spaces are short-lived.
        let place = self.0.iter().rposition(|of| of.gpu == gpu);
        let index = place.unwrap_or(self.0.len());
        match u16::try_from(index).map(GpuIndex) {
            Ok(index) if index < GpuIndex::CPU => {
                if place.is_none() {
                    self.0.push(OfGpu::new(gpu));
                }
                index
            }
            _ => GpuIndex::NONE,
        }
    }

    /// Adds reuse at a GPU.
    pub(super) fn reused(&mut self, index: GpuIndex, reuse: &Reuse) {
        if let Some(of) = self.0.get_mut(usize::from(index.0)) {
            of.reuse += reuse;
        }
    }

    /// Adds what a GPU took from another one.
    pub(super) fn took(&mut self, index: GpuIndex, taken: Taken) {
        let Some(of) = self.0.get_mut(usize::from(index.0)) else { return };
        of.peer_reclaimed_bytes = of.peer_reclaimed_bytes.saturating_add(taken.reclaimed_bytes);
        add_peers(&mut of.peers, taken.from.map(|from| (from, 1)));
    }

    /// Marks a GPU as one whose residency is known.
    pub(super) fn note_residency(&mut self, index: GpuIndex) {
        if let Some(of) = self.0.get_mut(usize::from(index.0)) {
            of.has_residency = true;
        }
    }

    /// Sum of residency at a GPU.
    pub(super) fn resident(&mut self, index: GpuIndex) -> Option<&mut Resident> {
        self.0.get_mut(usize::from(index.0)).map(|of| &mut of.resident)
    }

    /// Clears the sums of residency.
    pub(super) fn clear_resident(&mut self) {
        self.0.iter_mut().for_each(|of| of.resident = Resident::default());
    }

    /// Marks the sums as uncertain, as records were dropped.
    pub(super) fn doubt(&mut self) {
        self.0.iter_mut().for_each(|of| of.resident.doubt());
    }

    /// Whether the GPU belongs to a VA space.
    pub(super) fn is_of(&self, index: GpuIndex, generation: Generation) -> bool {
        self.0.get(usize::from(index.0)).is_some_and(|of| matches!(of.gpu, Gpu::Of(its, _) if its == generation))
    }

    /// Whether any GPU belongs to a VA space.
    pub(super) fn has_any_of(&self, generation: Generation) -> bool {
        self.0.iter().any(|of| matches!(of.gpu, Gpu::Of(its, _) if its == generation))
    }

    /// Number of GPUs whose residency is known.
    pub(super) fn with_residency(&self) -> usize {
        self.0.iter().filter(|of| of.has_residency).count()
    }

    /// Makes the GPUs of a destroyed VA space final. Returns the new place of each index: a GPU is
    /// listed once.
    pub(super) fn settle(&mut self, generation: Generation, key: impl Fn(u32) -> GpuKey) -> Moves {
        let mut settled: Vec<OfGpu> = Vec::with_capacity(self.0.len());
        let moves: Vec<GpuIndex> = self
            .0
            .drain(..)
            .map(|of| {
                let gpu = match of.gpu {
                    Gpu::Of(its, id) if its == generation => Gpu::Known(key(id)),
                    other => other,
                };
                // Known GPUs are few. There may be thousands of others, all different.
                let same = |known| settled.iter().position(|of| of.gpu == known);
                let place =
                    Some(gpu).filter(|gpu| matches!(gpu, Gpu::Known(_))).and_then(same).unwrap_or(settled.len());
                match settled.get_mut(place) {
                    Some(same) => {
                        same.reuse += &of.reuse;
                        add_peers(&mut same.peers, of.peers);
                        same.peer_reclaimed_bytes = same.peer_reclaimed_bytes.saturating_add(of.peer_reclaimed_bytes);
                        same.resident += of.resident;
                        same.has_residency |= of.has_residency;
                    }
                    None => settled.push(OfGpu { gpu, ..of }),
                }
                u16::try_from(place).map_or(GpuIndex::NONE, GpuIndex)
            })
            .collect();
        let moves = Moves(moves);
        for of in settled.iter_mut().filter(|of| !of.peers.is_empty()) {
            let peers = std::mem::take(&mut of.peers).into_iter().map(|(peer, bounces)| (moves.of(peer), bounces));
            add_peers(&mut of.peers, peers);
        }
        self.0 = settled;
        moves
    }

    /// GPU of an index.
    pub(super) fn key(&self, index: GpuIndex, key: impl Fn(Generation, u32) -> GpuKey) -> Option<GpuKey> {
        self.0.get(usize::from(index.0)).map(|of| of.gpu.key(key))
    }

    /// Residency at each GPU where it is known.
    pub(super) fn residents(&self, key: impl Fn(Generation, u32) -> GpuKey) -> BTreeMap<GpuKey, Resident> {
        let mut residents: BTreeMap<_, Resident> = BTreeMap::new();
        for of in self.0.iter().filter(|of| of.has_residency) {
            *residents.entry(of.gpu.key(&key)).or_default() += of.resident;
        }
        residents
    }

    /// Blocks that each GPU took from other ones.
    pub(super) fn peer_reuse(&self, key: impl Fn(Generation, u32) -> GpuKey) -> BTreeMap<GpuKey, PeerReuse> {
        let mut reuse: BTreeMap<_, PeerReuse> = BTreeMap::new();
        for of in self.0.iter().filter(|of| !of.peers.is_empty()) {
            let sums = reuse.entry(of.gpu.key(&key)).or_default();
            sums.reclaimed_bytes = sums.reclaimed_bytes.saturating_add(of.peer_reclaimed_bytes);
            let peers = of.peers.iter().filter_map(|(peer, bounces)| Some((self.key(*peer, &key)?, *bounces)));
            add_peers(&mut sums.bounces, peers);
        }
        reuse
    }

    /// Reuse at each GPU.
    pub(super) fn reuse(&self, key: impl Fn(Generation, u32) -> GpuKey) -> BTreeMap<GpuKey, Reuse> {
        let mut reuse: BTreeMap<_, Reuse> = BTreeMap::new();
        for of in &self.0 {
            *reuse.entry(of.gpu.key(&key)).or_default() += &of.reuse;
        }
        reuse
    }
}

/// New places of indices after GPUs became final.
pub(super) struct Moves(Vec<GpuIndex>);

impl Moves {
    pub(super) fn of(&self, index: GpuIndex) -> GpuIndex {
        if index == GpuIndex::CPU {
            return index;
        }
        self.0.get(usize::from(index.0)).copied().unwrap_or(GpuIndex::NONE)
    }
}

fn add_peers<K: Ord>(sums: &mut BTreeMap<K, u64>, peers: impl IntoIterator<Item = (K, u64)>) {
    for (peer, bounces) in peers {
        let sum = sums.entry(peer).or_default();
        *sum = sum.saturating_add(bounces);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reuse(bytes: u64) -> Reuse {
        Reuse { refetched_bytes: bytes, ..Reuse::default() }
    }

    #[test]
    fn gpu_of_several_va_spaces_is_merged_once_they_are_closed() {
        let mut gpus = Gpus::default();
        let [first, other, second] = [(7, 1), (7, 9), (8, 2)].map(|(generation, id)| gpus.index(generation, id));
        assert_eq!(gpus.index(7, 1), first);
        for (index, bytes) in [(first, 1), (other, 2), (second, 4)] {
            gpus.reused(index, &reuse(bytes));
        }
        let card = GpuKey::Unknown(5);
        let moves = gpus.settle(7, |id| if id == 1 { card } else { GpuKey::Unknown(id) });
        assert_eq!(gpus.key(moves.of(first), |_, id| GpuKey::Pending(id)), Some(card));
        assert_eq!(gpus.key(moves.of(second), |_, id| GpuKey::Pending(id)), Some(GpuKey::Pending(2)));
        let again = gpus.settle(8, |_| card);
        assert_eq!(again.of(moves.of(second)), again.of(moves.of(first)));
        assert_eq!(gpus.reuse(|_, _| card), [(card, reuse(5)), (GpuKey::Unknown(9), reuse(2))].into());
        assert_eq!([GpuIndex::NONE, GpuIndex::CPU].map(|index| again.of(index)), [GpuIndex::NONE, GpuIndex::CPU]);
    }

    #[test]
    fn blocks_taken_from_a_gpu_stay_counted_once_both_are_known() {
        let mut gpus = Gpus::default();
        let [one, other, again] = [(7, 1), (7, 2), (8, 2)].map(|(generation, id)| gpus.index(generation, id));
        for (to, from) in [(one, other), (one, other), (other, one), (one, again)] {
            gpus.took(to, Taken { from: Some(from), reclaimed_bytes: 4096 });
        }
        let expected = |of: fn(u32) -> GpuKey| {
            let took =
                |from, bounces| PeerReuse { reclaimed_bytes: 4096 * bounces, bounces: [(of(from), bounces)].into() };
            BTreeMap::from([(of(1), took(2, 3)), (of(2), took(1, 1))])
        };
        let pending = |_, id| GpuKey::Pending(id);
        assert_eq!(gpus.peer_reuse(pending), expected(GpuKey::Pending));
        gpus.settle(7, GpuKey::Unknown);
        gpus.settle(8, GpuKey::Unknown);
        assert_eq!(gpus.peer_reuse(pending), expected(GpuKey::Unknown));
    }

    #[test]
    fn idle_va_space_has_no_gpu() {
        let mut gpus = Gpus::default();
        gpus.index(7, 1);
        assert_eq!([7, 8].map(|generation| gpus.has_any_of(generation)), [true, false]);
        gpus.settle(7, GpuKey::Unknown);
        assert!(!gpus.has_any_of(7));
    }

    #[test]
    fn gpu_beyond_the_index_range_is_unknown() {
        let of = |generation| OfGpu::new(Gpu::Of(generation, 1));
        let mut gpus = Gpus((2..u64::from(u16::MAX)).map(of).collect());
        assert_eq!(gpus.index(0, 1), GpuIndex(u16::MAX - 2));
        assert_eq!(gpus.index(u64::MAX, 1), GpuIndex::NONE);
        gpus.reused(GpuIndex::NONE, &reuse(1));
        assert_eq!(gpus.key(GpuIndex::NONE, |_, id| GpuKey::Pending(id)), None);
    }
}
