//! Record of each VA space created, found or destroyed.

use crate::count::RecordLosses;

/// Size of the ring of these records.
pub const RING_BYTES: u32 = 1 << 20;

/// Kind of a lifecycle record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum LifecycleKind {
    /// Creation. The other fields identify the creator.
    Registered = 1,
    /// Destruction; the generation gets no further counts.
    Destroyed = 2,
    /// VA space found when the probes were attached. The other fields identify its holder.
    Adopted = 3,
    /// First of the VA spaces of a process that share a generation, as it creates them too fast.
    /// The other fields are as for `Registered`. Further ones of the process have this generation
    /// too, and no end is reported.
    SharedByProcess = 4,
    /// VA spaces of a user that share a generation, as the user's processes create them too fast.
    /// Only `uid` identifies the owner.
    SharedByUser = 5,
}

/// Lifecycle record, as in the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Lifecycle {
    /// Generation of the VA space.
    pub generation: u64,
    /// Start time of the process, ns since boot, suspended time included. 0 in `Destroyed`, as are
    /// all further fields except losses and owner.
    pub start_boottime_ns: u64,
    /// `Destroyed`: events of this VA space for which the counts had no room.
    pub dropped_events: u64,
    /// `Destroyed`: losses of its block records.
    pub records: RecordLosses,
    /// A [`LifecycleKind`].
    pub kind: u32,
    /// Process id in the initial pid namespace.
    pub tgid: u32,
    /// Thread id, in the same namespace; in `Adopted` the process's.
    pub tid: u32,
    /// Real user id in the initial user namespace.
    pub uid: u32,
    /// Short name of the thread, padded with 0; in `Adopted` the process's.
    pub comm: [u8; 16],
}

const _: () = assert!(size_of::<Lifecycle>() == 80);

impl Lifecycle {
    /// Kind, if the number is a known one.
    #[must_use]
    pub const fn kind(&self) -> Option<LifecycleKind> {
        match self.kind {
            1 => Some(LifecycleKind::Registered),
            2 => Some(LifecycleKind::Destroyed),
            3 => Some(LifecycleKind::Adopted),
            4 => Some(LifecycleKind::SharedByProcess),
            5 => Some(LifecycleKind::SharedByUser),
            _ => None,
        }
    }
}

record!(Lifecycle);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_the_wrong_length_are_rejected() {
        let mut bytes = [0; 81];
        bytes[0] = 9;
        bytes[48] = 2;
        let record = Lifecycle::from_bytes(&bytes[..80]);
        assert_eq!(record, Some(Lifecycle { generation: 9, kind: 2, ..Lifecycle::default() }));
        assert_eq!(Lifecycle::from_bytes(&bytes[..79]), None);
        assert_eq!(Lifecycle::from_bytes(&bytes), None);
    }

    #[test]
    fn unknown_kinds_are_rejected() {
        let kinds = [0, 1, 2, 3, 4, 5, 6].map(|kind| Lifecycle { kind, ..Lifecycle::default() }.kind());
        let known = [
            LifecycleKind::Registered,
            LifecycleKind::Destroyed,
            LifecycleKind::Adopted,
            LifecycleKind::SharedByProcess,
            LifecycleKind::SharedByUser,
        ];
        let known = known.map(Some);
        assert_eq!(kinds, [&[None], &known[..], &[None]].concat()[..]);
    }
}
