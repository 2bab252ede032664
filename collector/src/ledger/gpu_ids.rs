//! GPUs of the processor ids in one VA space's events.

use std::{collections::BTreeMap, sync::Arc};

use model::GpuKey;

use crate::gpus::Links;

/// Maximum of readings that may miss the link of an id with counts. One may miss an existing link,
/// as links come and go meanwhile.
const MISSES_MAX: u8 = 3;

/// GPU ids of one VA space.
///
/// An id belongs to a GPU only while some VA space uses that GPU. It is therefore looked up while
/// this one is alive, and the result is stored: afterwards another GPU may have the id. (A VA space
/// that releases a GPU and then uses another with the same id has both under the first.)
#[derive(Debug, Default)]
pub(super) struct GpuIds {
    ids: BTreeMap<u32, Id>,
    /// Last state of the driver's procfs while the VA space lived.
    shown: Arc<Links>,
}

#[derive(Debug)]
enum Id {
    Pending { misses: u8 },
    Settled(GpuKey),
}

impl GpuIds {
    /// Records that an id has counts.
    pub(super) fn counted(&mut self, id: u32) {
        self.ids.entry(id).or_insert(Id::Pending { misses: 0 });
    }

    /// Sets the state of the driver's procfs, read after the counts, while the VA space lives.
    pub(super) fn look(&mut self, links: &Arc<Links>) {
        for (id, state) in &mut self.ids {
            let Id::Pending { misses } = state else { continue };
            // A link that is gone was this GPU's a moment ago.
            if let Some(uuid) = links.get(id).or_else(|| self.shown.get(id)) {
                *state = Id::Settled(GpuKey::Known(*uuid));
            } else if *misses + 1 < MISSES_MAX {
                *misses += 1;
            } else {
                *state = Id::Settled(GpuKey::Unknown(*id));
            }
        }
        self.shown = Arc::clone(links);
    }

    /// Makes the ids final: the VA space is destroyed and was read for the last time.
    pub(super) fn settle(&mut self) {
        for (id, state) in &mut self.ids {
            if matches!(state, Id::Pending { .. }) {
                *state = Id::Settled(self.shown.get(id).map_or(GpuKey::Unknown(*id), |uuid| GpuKey::Known(*uuid)));
            }
        }
    }

    /// Whether the GPUs of some ids may still become known.
    pub(super) fn are_pending(&self) -> bool {
        // The host has no GPU.
        self.ids.iter().any(|(id, state)| *id != 0 && matches!(state, Id::Pending { .. }))
    }

    /// GPU key for the counts of an id.
    pub(super) fn key(&self, id: u32) -> GpuKey {
        match self.ids.get(&id) {
            Some(Id::Settled(key)) => *key,
            Some(Id::Pending { .. }) | None => GpuKey::Pending(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use model::GpuUuid;

    use super::*;

    const A: GpuUuid = GpuUuid([1; 16]);
    const B: GpuUuid = GpuUuid([2; 16]);

    fn none() -> Arc<Links> {
        Arc::default()
    }

    fn one_is(uuid: GpuUuid) -> Arc<Links> {
        Arc::new([(1, uuid)].into())
    }

    #[test]
    fn id_is_the_gpu_at_the_time_of_its_first_count() {
        let mut ids = GpuIds::default();
        ids.look(&one_is(B));
        ids.counted(1);
        assert_eq!(ids.key(1), GpuKey::Pending(1));
        ids.look(&one_is(A));
        ids.look(&one_is(B));
        ids.settle();
        assert_eq!(ids.key(1), GpuKey::Known(A));
    }

    #[test]
    fn id_first_counted_at_the_last_reading_is_the_gpu_of_the_va_spaces_lifetime() {
        let mut ids = GpuIds::default();
        ids.look(&one_is(A));
        ids.counted(1);
        ids.settle();
        assert_eq!(ids.key(1), GpuKey::Known(A));
    }

    #[test]
    fn link_removed_before_the_first_reading_is_remembered() {
        let mut ids = GpuIds::default();
        ids.look(&one_is(A));
        ids.counted(1);
        ids.look(&none());
        assert_eq!(ids.key(1), GpuKey::Known(A));
    }

    #[test]
    fn link_missed_by_one_read_is_found_by_the_next() {
        let mut ids = GpuIds::default();
        ids.counted(1);
        ids.look(&none());
        assert_eq!(ids.key(1), GpuKey::Pending(1));
        ids.look(&one_is(A));
        assert_eq!(ids.key(1), GpuKey::Known(A));
    }

    #[test]
    fn id_without_a_link_stays_unknown_even_if_it_appears_later() {
        let mut ids = GpuIds::default();
        ids.counted(1);
        for _ in 0..MISSES_MAX {
            assert_eq!(ids.key(1), GpuKey::Pending(1));
            ids.look(&none());
        }
        assert_eq!(ids.key(1), GpuKey::Unknown(1));
        ids.look(&one_is(A));
        assert_eq!(ids.key(1), GpuKey::Unknown(1));
    }

    #[test]
    fn gpus_of_an_unobserved_va_space_are_unknown() {
        let mut ids = GpuIds::default();
        ids.counted(1);
        ids.settle();
        assert_eq!(ids.key(1), GpuKey::Unknown(1));
    }
}
