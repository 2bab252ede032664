//! Messages between uvmd and a holder: packets of one size, some with descriptors.

use crate::{
    confinement::Step,
    messages::{Fields, Wire},
    uvm::{Status, Uuid, outcome::Outcome, tracker::Layout},
};

/// Request to a holder. Each has one reply, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// A VA space, and bytes of its memory. Descriptors: the VA space, the pidfd of its process, and
    /// the memory.
    Hold { space: u64, memory_bytes: u64 },
    /// An empty VA space of uvmd's own, and bytes of its memory. Descriptors: an unused file of the
    /// driver, the pidfd of uvmd, and the memory.
    Create { space: u64, memory_bytes: u64 },
    /// Counters of a held VA space at this processor, or at all of them if it is the CPU, in this
    /// page of its memory. Descriptor: a new open file of the tools device.
    Count { space: u64, page: u32, layout: Layout, processor: Uuid },
    /// Records of a held VA space, of these kinds, in a ring of this many that begins after this
    /// control page of its memory. Descriptor: a new open file of the tools device.
    Watch { space: u64, control_page: u32, layout: Layout, records: u32, kinds: u64 },
    /// Wait until records of all that has completed are written, of all VA spaces.
    Flush { space: u64 },
    /// Close of the trackers of a VA space.
    Release { space: u64 },
    /// One further report of a queue that is half full.
    Rearm,
}

/// Reply of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Completed confinement; once, before all others.
    Confined,
    NotConfined {
        step: Step,
        errno: i32,
    },
    /// The VA space is held by this descriptor of the holder.
    Held {
        fd: i32,
    },
    /// Outcome of another request, or of one to hold that failed.
    Made(Outcome),
    /// The VA space is not held: its process has exited, or it never was.
    NotHeld,
    /// Report that a queue is half full. It is no reply: there is a first one, and one more for each
    /// [`Request::Rearm`].
    HalfFull,
}

impl Wire for Request {
    fn to_fields(&self) -> Fields {
        match *self {
            Self::Hold { space, memory_bytes } => {
                Fields { code: 1, base: space, length: memory_bytes, ..Fields::default() }
            }
            Self::Count { space, page, layout, processor } => {
                Fields { code: 2, number: page, base: space, length: layout as u64, uuid: processor.bytes() }
            }
            Self::Release { space } => Fields { code: 3, base: space, ..Fields::default() },
            Self::Watch { space, control_page, layout, records, kinds } => {
                let rest = u128::from(records) << 8 | layout as u128;
                Fields { code: 4, number: control_page, base: space, length: kinds, uuid: rest.to_le_bytes() }
            }
            Self::Create { space, memory_bytes } => {
                Fields { code: 6, base: space, length: memory_bytes, ..Fields::default() }
            }
            Self::Flush { space } => Fields { code: 5, base: space, ..Fields::default() },
            Self::Rearm => Fields { code: 7, ..Fields::default() },
        }
    }

    fn of_fields(fields: Fields) -> Option<Self> {
        let Fields { code, number, base: space, length, uuid } = fields;
        Some(match code {
            1 => Self::Hold { space, memory_bytes: length },
            2 => {
                let layout = Layout::ALL.into_iter().find(|layout| *layout as u64 == length)?;
                Self::Count { space, page: number, layout, processor: Uuid::from_bytes(uuid) }
            }
            3 => Self::Release { space },
            4 => {
                let rest = u128::from_le_bytes(uuid);
                let layout = Layout::ALL.into_iter().find(|layout| *layout as u128 == rest & 0xff)?;
                let records = u32::try_from(rest >> 8).ok()?;
                Self::Watch { space, control_page: number, layout, records, kinds: length }
            }
            5 => Self::Flush { space },
            6 => Self::Create { space, memory_bytes: length },
            7 => Self::Rearm,
            _ => return None,
        })
    }
}

impl Wire for Reply {
    fn to_fields(&self) -> Fields {
        let of = |code, number| Fields { code, number, ..Fields::default() };
        match *self {
            Self::Confined => of(1, 0),
            Self::NotConfined { step, errno } => Fields { base: step as u64, ..of(2, errno.cast_unsigned()) },
            Self::Made(Outcome::Done) => of(3, 0),
            Self::Made(Outcome::Refused(Status(status))) => of(4, status),
            Self::Made(Outcome::NotCalled { errno }) => of(5, errno.cast_unsigned()),
            Self::NotHeld => of(6, 0),
            Self::Held { fd } => of(7, fd.cast_unsigned()),
            Self::HalfFull => of(8, 0),
        }
    }

    fn of_fields(fields: Fields) -> Option<Self> {
        Some(match (fields.code, fields.number) {
            (1, _) => Self::Confined,
            (2, errno) => Self::NotConfined { step: Step::from_number(fields.base)?, errno: errno.cast_signed() },
            (3, _) => Self::Made(Outcome::Done),
            (4, status) => Self::Made(Outcome::Refused(Status(status))),
            (5, errno) => Self::Made(Outcome::NotCalled { errno: errno.cast_signed() }),
            (6, _) => Self::NotHeld,
            (7, fd) => Self::Held { fd: fd.cast_signed() },
            (8, _) => Self::HalfFull,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_replies_round_trip() {
        let uuid = Uuid::from_bytes([7; 16]);
        let count = |layout| Request::Count { space: 5, page: 2, layout, processor: uuid };
        let requests =
            [Request::Hold { space: 1 << 63, memory_bytes: 8192 }, Request::Release { space: 3 }].into_iter();
        let watch = |layout| Request::Watch { space: 5, control_page: 33, layout, records: 16_384, kinds: 1 << 13 };
        let others = [Request::Flush { space: 5 }, Request::Create { space: 7, memory_bytes: 4096 }, Request::Rearm];
        let requests = requests.chain(others).chain(Layout::ALL.map(watch));
        for request in requests.chain(Layout::ALL.map(count)) {
            assert_eq!(Request::of_fields(request.to_fields()), Some(request));
        }
        for reply in [
            Reply::Confined,
            Reply::NotConfined { step: Step::RestrictCalls, errno: 1 },
            Reply::Made(Outcome::Done),
            Reply::Made(Outcome::Refused(Status::ILLEGAL_ACTION)),
            Reply::Made(Outcome::NotCalled { errno: 12 }),
            Reply::NotHeld,
            Reply::Held { fd: 9 },
            Reply::HalfFull,
        ] {
            assert_eq!(Reply::of_fields(reply.to_fields()), Some(reply));
        }
        assert_eq!(Request::of_fields(Fields { code: 2, length: 9, ..Fields::default() }), None);
    }
}
