//! Messages between this process, a spawner and an actor.

use std::time::Duration;

use super::Ending;
use crate::{
    confinement::Step,
    messages::{Fields, Wire},
    uvm::{
        Status, Uuid,
        call::{Call, SpaceFlags},
        outcome::Outcome,
        pages::PageRange,
    },
};

/// Order to the spawner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Start of an actor. Descriptors: its channel, the VA spaces, and last the cgroup, if it is
    /// not uvmd's own.
    Start { has_cgroup: bool },
    /// Start of a server. Descriptor: its channel.
    Serve(Server),
    /// Wait for the exit of a child, for a moment.
    Reap { pid: u32 },
}

/// Child with a channel alone, in uvmd's cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    /// [Accessor](crate::accessor).
    Accessor,
    /// [Holder](crate::holder).
    Holder,
}

impl Server {
    pub(super) const ALL: [Self; 2] = [Self::Accessor, Self::Holder];
}

/// Report of the spawner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Report {
    Ready,
    NotReady {
        step: Step,
        errno: i32,
    },
    /// Start of a child.
    Started {
        pid: u32,
    },
    NotStarted {
        errno: i32,
    },
    Ended(Ending),
    StillThere,
}

/// Request to an actor: a call on one of its VA spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) space: u32,
    pub(super) call: Call,
}

/// Response of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Response {
    /// Completed confinement; once, before all others.
    Confined,
    Made {
        outcome: Outcome,
        took: Duration,
    },
    NotConfined {
        step: Step,
        errno: i32,
    },
}

impl Wire for Order {
    fn to_fields(&self) -> Fields {
        match *self {
            Self::Start { has_cgroup } => Fields { code: 1, number: has_cgroup.into(), ..Fields::default() },
            Self::Reap { pid } => Fields { code: 2, number: pid, ..Fields::default() },
            Self::Serve(server) => Fields { code: 3, number: server as u32, ..Fields::default() },
        }
    }

    fn of_fields(fields: Fields) -> Option<Self> {
        Some(match (fields.code, fields.number) {
            (1, has_cgroup @ 0..=1) => Self::Start { has_cgroup: has_cgroup == 1 },
            (2, pid) => Self::Reap { pid },
            (3, number) => Self::Serve(Server::ALL.into_iter().find(|server| *server as u32 == number)?),
            _ => return None,
        })
    }
}

impl Wire for Report {
    fn to_fields(&self) -> Fields {
        let of = |code, number: i32| Fields { code, number: number.cast_unsigned(), ..Fields::default() };
        match *self {
            Self::Ready => of(1, 0),
            Self::NotReady { step, errno } => Fields { base: step as u64, ..of(2, errno) },
            Self::Started { pid } => Fields { number: pid, ..of(3, 0) },
            Self::NotStarted { errno } => of(4, errno),
            Self::Ended(Ending::Exited(status)) => of(5, status),
            Self::Ended(Ending::Killed(signal)) => of(6, signal),
            Self::Ended(Ending::Unknown) => of(7, 0),
            Self::StillThere => of(8, 0),
        }
    }

    fn of_fields(fields: Fields) -> Option<Self> {
        let number = fields.number.cast_signed();
        Some(match fields.code {
            1 => Self::Ready,
            2 => Self::NotReady { step: Step::from_number(fields.base)?, errno: number },
            3 => Self::Started { pid: fields.number },
            4 => Self::NotStarted { errno: number },
            5 => Self::Ended(Ending::Exited(number)),
            6 => Self::Ended(Ending::Killed(number)),
            7 => Self::Ended(Ending::Unknown),
            8 => Self::StillThere,
            _ => return None,
        })
    }
}

impl Wire for Request {
    fn to_fields(&self) -> Fields {
        let (code, pages, uuid) = match self.call {
            Call::Migrate(pages, to) => (1, Some(pages), to),
            Call::SetPreferredLocation(pages, location) => (2, Some(pages), location),
            Call::UnsetPreferredLocation(pages) => (3, Some(pages), Uuid::CPU),
            Call::SetAccessedBy(pages, by) => (4, Some(pages), by),
            Call::UnsetAccessedBy(pages, by) => (5, Some(pages), by),
            Call::EnableReadDuplication(pages) => (6, Some(pages), Uuid::CPU),
            Call::DisableReadDuplication(pages) => (7, Some(pages), Uuid::CPU),
            Call::CompareFlags(_) => (8, None, Uuid::CPU),
        };
        let flags = if let Call::CompareFlags(SpaceFlags(flags)) = self.call { flags } else { 0 };
        let (base, length) = pages.map_or((flags, 0), |pages| (pages.begin(), pages.bytes()));
        Fields { code, number: self.space, base, length, uuid: uuid.bytes() }
    }

    fn of_fields(Fields { code, number: space, base, length, uuid }: Fields) -> Option<Self> {
        if code == 8 {
            return Some(Self { space, call: Call::CompareFlags(SpaceFlags(base)) });
        }
        let (pages, uuid) = (PageRange::new(base, length)?, Uuid::from_bytes(uuid));
        let call = match code {
            1 => Call::Migrate(pages, uuid),
            2 => Call::SetPreferredLocation(pages, uuid),
            3 => Call::UnsetPreferredLocation(pages),
            4 => Call::SetAccessedBy(pages, uuid),
            5 => Call::UnsetAccessedBy(pages, uuid),
            6 => Call::EnableReadDuplication(pages),
            7 => Call::DisableReadDuplication(pages),
            _ => return None,
        };
        Some(Self { space, call })
    }
}

impl Wire for Response {
    fn to_fields(&self) -> Fields {
        match *self {
            Self::Made { outcome, took } => {
                let (code, number) = match outcome {
                    Outcome::Done => (1, 0),
                    Outcome::Refused(Status(status)) => (2, status),
                    Outcome::NotCalled { errno } => (3, errno.cast_unsigned()),
                };
                let base = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
                Fields { code, number, base, ..Fields::default() }
            }
            Self::NotConfined { step, errno } => {
                Fields { code: 4, number: errno.cast_unsigned(), base: step as u64, ..Fields::default() }
            }
            Self::Confined => Fields { code: 5, ..Fields::default() },
        }
    }

    fn of_fields(fields: Fields) -> Option<Self> {
        let outcome = match fields.code {
            1 => Outcome::Done,
            2 => Outcome::Refused(Status(fields.number)),
            3 => Outcome::NotCalled { errno: fields.number.cast_signed() },
            4 => {
                return Some(Self::NotConfined {
                    step: Step::from_number(fields.base)?,
                    errno: fields.number.cast_signed(),
                });
            }
            5 => return Some(Self::Confined),
            _ => return None,
        };
        Some(Self::Made { outcome, took: Duration::from_nanos(fields.base) })
    }
}

#[cfg(test)]
mod tests;
