//! Messages between uvmd and an accessor. Each is a packet of a Unix socket: a head of one size, and a body.
//! Sender and receiver are the same program, so there is one version. An accessor handles memory of any program,
//! so its replies are claims: all that uvmd takes from one are bytes, a count, an error and a duration.

use std::{
    io::{self, IoSlice, IoSliceMut},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

use call_ring::Operation;
use rustix::net::{RecvFlags, SendFlags};

use crate::{
    confinement::Step,
    packets::{self, Packet, malformed},
};

/// Maximum bytes of a body.
pub(crate) const BODY_BYTES_MAX: usize = 64 << 10;
const OPERATION_BYTES: usize = 20;
/// Maximum operations of a request.
pub(crate) const OPERATIONS_MAX: usize = BODY_BYTES_MAX / OPERATION_BYTES;
const HEAD_BYTES: usize = 32;

/// Request to an accessor. Each is replied to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Takes a memory, of which these first bytes may be written. Descriptor: its file.
    Add { memory: u64, writable_bytes: u64 },
    /// Drops a memory.
    Remove { memory: u64 },
    /// Reads bytes at an offset.
    Read { memory: u64, offset: u64, bytes: usize },
    /// Applies operations in order until one fails, and then wakes waiters of a word, if any.
    Write { memory: u64, wake: Option<usize>, operations: Vec<Operation> },
}

/// Result of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Number of bytes read, which follow, or of operations done.
    Done(usize),
    /// The memory has, or had, holes.
    Sparse,
    /// It failed with this error.
    Failed { errno: i32 },
    /// Completed confinement; once, before all others.
    Confined,
    /// Failed confinement.
    NotConfined { step: Step, errno: i32 },
}

/// Reply of an accessor, before the bytes read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) outcome: Outcome,
    /// Time of the request: processor time since the last reply, or the longer time for which the memory made it
    /// wait.
    pub(crate) spent: Duration,
}

type Head = [u8; HEAD_BYTES];

fn head(code: u64, words: [u64; 3]) -> Head {
    let mut head = [0; HEAD_BYTES];
    let [first, second, third] = words;
    for (to, word) in head.as_chunks_mut::<8>().0.iter_mut().zip([code, first, second, third]) {
        *to = word.to_le_bytes();
    }
    head
}

fn words(head: &Head) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, from) in words.iter_mut().zip(head.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*from);
    }
    words
}

impl Request {
    fn encode(&self) -> (Head, Vec<u8>) {
        match self {
            Self::Add { memory, writable_bytes } => (head(1, [*memory, *writable_bytes, 0]), Vec::new()),
            Self::Remove { memory } => (head(2, [*memory, 0, 0]), Vec::new()),
            Self::Read { memory, offset, bytes } => (head(3, [*memory, *offset, *bytes as u64]), Vec::new()),
            Self::Write { memory, wake, operations } => {
                // 0 is no word, so that the words are counted from 1.
                let wake = wake.map_or(0, |word| (word as u64).saturating_add(1));
                (head(4, [*memory, wake, 0]), operations.iter().flat_map(encoded).collect())
            }
        }
    }

    fn decode(bytes: &Head, body: &[u8]) -> Option<Self> {
        let [code, memory, second, third] = words(bytes);
        let request = match code {
            1 if third == 0 => Self::Add { memory, writable_bytes: second },
            2 if second == 0 && third == 0 => Self::Remove { memory },
            3 => {
                let bytes = usize::try_from(third).ok().filter(|bytes| *bytes <= BODY_BYTES_MAX)?;
                Self::Read { memory, offset: second, bytes }
            }
            4 if third == 0 => {
                let wake = second.checked_sub(1).map(usize::try_from).transpose().ok()?;
                let (operations, rest) = body.as_chunks::<OPERATION_BYTES>();
                if !rest.is_empty() {
                    return None;
                }
                let operations = operations.iter().map(decoded).collect::<Option<_>>()?;
                return Some(Self::Write { memory, wake, operations });
            }
            _ => return None,
        };
        body.is_empty().then_some(request)
    }
}

/// Word with a bit for an exchange, and its two values.
fn encoded(operation: &Operation) -> [u8; OPERATION_BYTES] {
    let (from, to, is_exchange) = match *operation {
        Operation::Store { value, .. } => (0, value, 0),
        Operation::CompareExchange { from, to, .. } => (from, to, 1),
    };
    // A word that needs more than 31 bits is beyond all memories, and refused as such.
    let at = u32::try_from(operation.at()).unwrap_or(u32::MAX).min(u32::MAX >> 1);
    let mut bytes = [0; OPERATION_BYTES];
    let parts: [&[u8]; 3] = [&(at << 1 | is_exchange).to_le_bytes(), &from.to_le_bytes(), &to.to_le_bytes()];
    for (to, from) in bytes.iter_mut().zip(parts.into_iter().flatten()) {
        *to = *from;
    }
    bytes
}

fn decoded(bytes: &[u8; OPERATION_BYTES]) -> Option<Operation> {
    let (word, rest) = bytes.split_first_chunk()?;
    let (from, rest) = rest.split_first_chunk()?;
    let word = u32::from_le_bytes(*word);
    let (at, from, to) = ((word >> 1) as usize, u64::from_le_bytes(*from), u64::from_le_bytes(*rest.first_chunk()?));
    match (word & 1, from) {
        (1, from) => Some(Operation::CompareExchange { at, from, to }),
        (_, 0) => Some(Operation::Store { at, value: to }),
        _ => None,
    }
}

impl Reply {
    fn encode(self) -> Head {
        let errno = |errno: i32| u64::from(errno.cast_unsigned());
        let spent = u64::try_from(self.spent.as_nanos()).unwrap_or(u64::MAX);
        match self.outcome {
            Outcome::Done(count) => head(1, [spent, count as u64, 0]),
            Outcome::Sparse => head(2, [spent, 0, 0]),
            Outcome::Failed { errno: error } => head(3, [spent, errno(error), 0]),
            Outcome::Confined => head(4, [spent, 0, 0]),
            Outcome::NotConfined { step, errno: error } => head(5, [spent, errno(error), step as u64]),
        }
    }

    fn decode(bytes: &Head) -> Option<Self> {
        let [code, spent, second, third] = words(bytes);
        let errno = || u32::try_from(second).ok().map(u32::cast_signed);
        let outcome = match (code, third) {
            (1, 0) => Outcome::Done(usize::try_from(second).ok()?),
            (2, 0) if second == 0 => Outcome::Sparse,
            (3, 0) => Outcome::Failed { errno: errno()? },
            (4, 0) if second == 0 => Outcome::Confined,
            (5, step) => {
                let step = Step::ALL.into_iter().find(|known| *known as u64 == step)?;
                Outcome::NotConfined { step, errno: errno()? }
            }
            _ => return None,
        };
        Some(Self { outcome, spent: Duration::from_nanos(spent) })
    }
}

/// Sends a request, with the file of a memory if it adds one. Does not wait.
pub(crate) fn send_request(socket: BorrowedFd<'_>, request: &Request, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let (head, body) = request.encode();
    packets::send(socket, &[IoSlice::new(&head), IoSlice::new(&body)], file.as_slice(), SendFlags::DONTWAIT)
}

/// Sends a reply with the bytes read.
pub(crate) fn send_reply(socket: BorrowedFd<'_>, reply: Reply, body: &[u8]) -> io::Result<()> {
    packets::send(socket, &[IoSlice::new(&reply.encode()), IoSlice::new(body)], &[], SendFlags::empty())
}

/// Waits for a request. `None` if the other end is closed.
pub(crate) fn receive_request(
    socket: impl AsFd,
    buffer: &mut Vec<u8>,
) -> io::Result<Option<(Request, Option<OwnedFd>)>> {
    buffer.resize(BODY_BYTES_MAX, 0);
    let Some((head, bytes, mut files)) = receive(socket, buffer, RecvFlags::empty())? else { return Ok(None) };
    let request = Request::decode(&head, buffer.get(..bytes).unwrap_or_default()).ok_or_else(malformed)?;
    Ok(Some((request, files.pop())))
}

/// Reply that has come, with the number of bytes after it in the buffer; `None` if there is none yet.
///
/// # Errors
/// If the other end is closed, or the reply is malformed.
pub(crate) fn receive_reply(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Option<(Reply, usize)>> {
    match receive(socket, buffer, RecvFlags::DONTWAIT) {
        Ok(Some((head, bytes, _))) => Ok(Some((Reply::decode(&head).ok_or_else(malformed)?, bytes))),
        Ok(None) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Receives a packet: its head, the number of bytes of its body, and its files.
fn receive(socket: impl AsFd, body: &mut [u8], flags: RecvFlags) -> io::Result<Option<(Head, usize, Vec<OwnedFd>)>> {
    let mut head = [0; HEAD_BYTES];
    let parts = &mut [IoSliceMut::new(&mut head), IoSliceMut::new(body)];
    let Some(Packet { bytes, files }) = packets::receive(socket, parts, flags)? else { return Ok(None) };
    Ok(Some((head, bytes.checked_sub(HEAD_BYTES).ok_or_else(malformed)?, files)))
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    fn pair() -> (OwnedFd, OwnedFd) {
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
    }

    #[test]
    fn requests_round_trip_with_their_file() {
        let store = Operation::Store { at: 5, value: u64::MAX };
        let exchange = Operation::CompareExchange { at: 7, from: 0, to: 1 };
        let most = vec![store; OPERATIONS_MAX];
        let (from, to) = pair();
        for request in [
            Request::Add { memory: 1, writable_bytes: 8192 },
            Request::Remove { memory: 1 },
            Request::Read { memory: 1, offset: 3, bytes: BODY_BYTES_MAX },
            Request::Write { memory: 1, wake: None, operations: vec![store, exchange] },
            Request::Write { memory: 1, wake: Some(0), operations: most },
        ] {
            send_request(from.as_fd(), &request, Some(from.as_fd())).unwrap();
            let (received, file) = receive_request(&to, &mut Vec::new()).unwrap().unwrap();
            assert!(received == request && file.is_some());
        }
        drop(from);
        assert!(receive_request(&to, &mut Vec::new()).unwrap().is_none());
    }

    #[test]
    fn replies_round_trip_with_the_largest_body() {
        let (from, to) = pair();
        let mut buffer = vec![0; BODY_BYTES_MAX];
        assert!(receive_reply(&to, &mut buffer).unwrap().is_none());
        for outcome in [
            Outcome::Done(BODY_BYTES_MAX),
            Outcome::Sparse,
            Outcome::Failed { errno: -1 },
            Outcome::Confined,
            Outcome::NotConfined { step: Step::FollowParent, errno: 3 },
        ] {
            let reply = Reply { outcome, spent: Duration::from_nanos(7) };
            send_reply(from.as_fd(), reply, &vec![9; BODY_BYTES_MAX]).unwrap();
            assert_eq!(receive_reply(&to, &mut buffer).unwrap(), Some((reply, BODY_BYTES_MAX)));
            assert!(buffer.iter().all(|byte| *byte == 9));
        }
    }

    #[test]
    fn reply_that_is_longer_than_asked_for_or_malformed_is_an_error() {
        let (from, to) = pair();
        let reply = Reply { outcome: Outcome::Done(9), spent: Duration::ZERO };
        send_reply(from.as_fd(), reply, &[1; 9]).unwrap();
        assert_eq!(receive_reply(&to, &mut [0; 8]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        for packet in [&head(9, [0; 3])[..], &head(1, [0, 0, 1]), &head(5, [0, 0, 99]), &[1; HEAD_BYTES - 1]] {
            packets::send(from.as_fd(), &[IoSlice::new(packet)], &[], SendFlags::empty()).unwrap();
            assert_eq!(receive_reply(&to, &mut [0; 8]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        }
    }
}
