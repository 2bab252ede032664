//! The record for each VA space made, found or destroyed.

use crate::count::RecordLosses;

/// Size of the ring of these.
pub const RING_BYTES: u32 = 1 << 20;

/// Kind of a lifecycle record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum LifecycleKind {
    /// Made. The other fields tell by whom.
    Registered = 1,
    /// Gone; nothing more will be counted for its generation.
    Destroyed = 2,
    /// Found when the probes were attached. The other fields name its holder.
    Adopted = 3,
    /// The first of the VA spaces that a process made too fast for a generation each. The other fields are as for `Registered`; further ones of the
    /// process have this generation too, and the end of none is reported.
    SharedByProcess = 4,
    /// VA spaces of a user, whose processes made them too fast, share a generation. Only `uid` names the owner.
    SharedByUser = 5,
}

/// One record of the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Lifecycle {
    /// Generation of the VA space.
    pub generation: u64,
    /// Start time of the process, ns since boot, suspended time included. 0 in `Destroyed`, as all that follows but the
    /// losses and whose it was.
    pub start_boottime_ns: u64,
    /// `Destroyed`: events of this VA space for which the counts had no room.
    pub dropped_events: u64,
    /// `Destroyed`: what became of its block records.
    pub records: RecordLosses,
    /// A [`LifecycleKind`].
    pub kind: u32,
    /// Process id in the initial pid namespace.
    pub tgid: u32,
    /// Thread id, in the same namespace; in `Adopted` the process's.
    pub tid: u32,
    /// Real user id in the initial user namespace.
    pub uid: u32,
    /// The thread's short name, filled up with 0; in `Adopted` the process's.
    pub comm: [u8; 16],
}

const _: () = assert!(size_of::<Lifecycle>() == 80);

impl Lifecycle {
    /// The kind, unless this is not one of our records.
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
