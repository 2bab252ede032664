//! Decoder of calls, on uvmd's side. Any content of the memory decodes to calls, unknown kinds or errors.

use crate::{
    group::{NAME_BYTES_MAX, NAME_BYTES_PER_RECORD, POINTERS_MAX},
    kind::{ARGUMENTS_UNKNOWN, ASYNCHRONOUS, CUT, Dim3, Kind, MemoryKind, SyncKind, TARGET_SHIFT, Target},
    lane::Lane,
    record::{RECORD_BYTES, Record, Stamp},
    token::{PointersHash, Signature, Token},
    word::Word,
};
use alloc::{string::String, vec::Vec};

/// Pointer among the arguments of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// Offset in the arguments.
    pub offset_bytes: u16,
    /// Address in memory that the program allocated.
    pub address: u64,
}

/// Effect of a call, with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Allocates memory.
    Malloc {
        /// Stream of a pool's memory, or 0.
        stream: u64,
        /// Address.
        address: u64,
        /// Size.
        bytes: u64,
        /// Kind.
        kind: MemoryKind,
        /// Ordinal of the CUDA device in the program.
        device: u32,
    },
    /// Frees memory.
    Free {
        /// Stream of a pool's memory, or 0.
        stream: u64,
        /// Address.
        address: u64,
    },
    /// Reverts the preceding free, which failed: the memory is still allocated.
    NotFreed {
        /// Address.
        address: u64,
    },
    /// Names a function, before its first launch.
    Function {
        /// Handle.
        function: u64,
        /// Name in the module, with replacement characters for bytes that are not UTF-8.
        name: String,
    },
    /// Launches a kernel.
    Launch {
        /// Stream, capture or node that takes the work.
        target: Target,
        /// Handle of the function.
        function: u64,
        /// Thread blocks.
        grid: Dim3,
        /// Threads per block.
        block: Dim3,
        /// Dynamic shared memory.
        shared_bytes: u32,
        /// Pointers among the arguments; `None` if the arguments are unknown.
        pointers: Option<Vec<Pointer>>,
    },
    /// Copies memory.
    Copy {
        /// Stream, capture or node that takes the work.
        target: Target,
        /// Address written.
        to: u64,
        /// Address read.
        from: u64,
        /// Bytes copied.
        bytes: u64,
        /// Rows of the copied or filled rectangle.
        rows: u64,
    },
    /// Fills memory.
    Fill {
        /// Stream, capture or node that takes the work.
        target: Target,
        /// Address.
        address: u64,
        /// Bytes written.
        bytes: u64,
        /// Rows of the copied or filled rectangle.
        rows: u64,
    },
    /// Prefetches managed memory.
    Prefetch {
        /// Stream.
        stream: u64,
        /// Address.
        address: u64,
        /// Size.
        bytes: u64,
        /// CUDA device, -1 for the host, or -2 for another location.
        to: i32,
        /// NUMA node of the host, if the call names one.
        host_node: Option<u32>,
    },
    /// Discards the content of managed memory: it need not be copied until it is written again.
    Discard {
        /// Stream.
        stream: u64,
        /// Address.
        address: u64,
        /// Size.
        bytes: u64,
    },
    /// Sets advice on managed memory, or removes it.
    Advise {
        /// Address.
        address: u64,
        /// Size.
        bytes: u64,
        /// `CUmem_advise`.
        advice: u32,
        /// CUDA device, -1 for the host or no location, or -2 for another location.
        to: i32,
        /// NUMA node of the host, if the call names one.
        host_node: Option<u32>,
    },
    /// Waits for the GPU.
    Sync {
        /// Scope of the wait.
        kind: SyncKind,
        /// Stream or event.
        handle: u64,
    },
    /// Ends a capture of streams.
    GraphCaptured {
        /// Id of the capture.
        capture: u64,
        /// Captured graph.
        graph: u64,
    },
    /// Instantiates a graph.
    GraphInstantiated {
        /// Graph.
        graph: u64,
        /// Instantiated graph.
        executable: u64,
    },
    /// Launches a graph.
    GraphLaunch {
        /// Stream.
        stream: u64,
        /// Instantiated graph.
        executable: u64,
    },
    /// Clones a graph.
    GraphCloned {
        /// Graph.
        graph: u64,
        /// Clone, whose nodes have new handles.
        clone: u64,
    },
    /// Destroys a graph.
    GraphDestroyed {
        /// Graph.
        graph: u64,
    },
    /// Destroys an instantiated graph.
    ExecutableDestroyed {
        /// Instantiated graph.
        executable: u64,
    },
}

impl Action {
    /// Whether the program itself decides where memory is, or whether its content is kept.
    #[must_use]
    pub const fn is_placement(&self) -> bool {
        matches!(self, Self::Prefetch { .. } | Self::Discard { .. } | Self::Advise { .. })
    }
}

/// Recorded call of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Order, time and thread of the call.
    pub stamp: Stamp,
    /// Whether it returns before its work is done.
    pub is_asynchronous: bool,
    /// Whether pointers or bytes of the name exceeded the record's limit and were cut.
    pub is_cut: bool,
    /// Launch number in the process, modulo 2^32; `None` for calls that are not an op of an iteration.
    /// Calls of several threads may have another order by stamp. A launch that the driver refuses takes a
    /// number, but has no record.
    pub number: Option<u32>,
    /// Effect, with the arguments.
    pub action: Action,
}

impl Call {
    /// Launch number in 64 bits: the one nearest to the number of another launch.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "records have the lower half")]
    pub fn number_near(&self, other: Option<u64>) -> Option<u64> {
        let number = self.number?;
        let other = other.unwrap_or(number.into());
        let since = number.wrapping_sub(other as u32).cast_signed();
        Some(other.wrapping_add_signed(since.into()))
    }

    /// Token in plans; `None` for a call that is not an op of an iteration.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        match &self.action {
            Action::Launch {
                target: Target::Stream(_) | Target::Captured(_),
                function,
                grid,
                block,
                shared_bytes,
                pointers,
            } => {
                let mut hash = PointersHash::default();
                pointers.iter().flatten().for_each(|pointer| hash.add(pointer.offset_bytes, pointer.address));
                let pointers = pointers.as_ref().map(|_| hash.finish());
                Some(Token { signature: Signature::of_kernel(*function, *grid, *block, *shared_bytes), pointers })
            }
            Action::GraphLaunch { executable, .. } => {
                Some(Token { signature: Signature::of_graph(*executable), pointers: None })
            }
            _ => None,
        }
    }
}

/// Result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// Call.
    Call(Call),
    /// Records of an unknown kind, by a later minor version.
    Unknown,
    /// Malformed records, which no helper writes.
    Invalid,
}

/// Maximum number of records after the first one of a call: its pointers, its name and a few spare.
const FOLLOWING_MAX: usize = POINTERS_MAX / 4 + NAME_BYTES_MAX / NAME_BYTES_PER_RECORD + 4;
/// Maximum number of records copied at a time: more than a call has.
const BATCH_MAX: usize = 1024;
const _: () = assert!(BATCH_MAX > FOLLOWING_MAX + 1, "a batch holds at least one call");

/// Reader of lanes. It decodes a private copy, which the program cannot change during the checks.
#[derive(Debug, Default)]
pub struct Reader {
    batch: Vec<[u8; RECORD_BYTES]>,
}

impl Reader {
    /// Reads the calls that are in a lane at the start, from `position` on or else from where the last reader
    /// ended. Later calls are left to the next read, so that a busy writer cannot prolong this one. `copy` copies
    /// bytes from an offset in the memory. `position` is that after the calls taken, also after an error; the
    /// caller then [consumes](Lane::consume) the records before it.
    ///
    /// # Errors
    /// Those of `copy`.
    pub fn read<W: Word, E>(
        &mut self,
        lane: &Lane<'_, W>,
        position: &mut Option<u64>,
        mut copy: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
        mut take: impl FnMut(Read),
    ) -> Result<(), E> {
        let mut unread = lane.unread(*position);
        while unread.records() > 0 {
            let records = unread.records().min(BATCH_MAX);
            self.batch.resize(records, [0; RECORD_BYTES]);
            let batch = &mut self.batch[..];
            let [first, wrapped] = lane.byte_ranges(&unread, records);
            let (first_bytes, wrapped_bytes) = batch.as_flattened_mut().split_at_mut(first.len());
            copy(first.start, first_bytes)?;
            if !wrapped_bytes.is_empty() {
                copy(wrapped.start, wrapped_bytes)?;
            }
            let mut rest: &[[u8; RECORD_BYTES]] = batch;
            let is_last = records == unread.records();
            while let Some((read, after)) = next(rest, is_last) {
                take(read);
                rest = after;
            }
            let left = rest.len();
            unread.skip(records - left);
            *position = Some(unread.position());
        }
        Ok(())
    }
}

/// First call of copied records, and the records after it; `None` if the call is incomplete.
/// A helper publishes all records of a call at once: with `is_last`, an incomplete call is malformed.
fn next(records: &[[u8; RECORD_BYTES]], is_last: bool) -> Option<(Read, &[[u8; RECORD_BYTES]])> {
    let (first, rest) = records.split_first()?;
    let first = Record::from_bytes(first);
    let count = usize::from(first.count);
    if count > FOLLOWING_MAX || is_last && count > rest.len() {
        return Some((Read::Invalid, rest));
    }
    let (following, rest) = rest.split_at_checked(count)?;
    let following: Vec<Record> = following.iter().map(Record::from_bytes).collect();
    Some((call(&first, &following), rest))
}

fn call(first: &Record, following: &[Record]) -> Read {
    if following.iter().any(|record| record.stamp.sequence != first.stamp.sequence) {
        return Read::Invalid;
    }
    let Some(kind) = Kind::from_number(first.kind) else { return Read::Unknown };
    action(kind, first, following).map_or(Read::Invalid, |action| {
        Read::Call(Call {
            stamp: first.stamp,
            is_asynchronous: first.flags & ASYNCHRONOUS != 0,
            is_cut: first.flags & CUT != 0,
            number: number(&action, first),
            action,
        })
    })
}

fn words_of_kind(kind: Kind, following: &[Record]) -> impl Iterator<Item = [u64; 5]> {
    following.iter().filter(move |record| record.kind == kind as u8).map(|record| record.words)
}

fn to_u32(word: u64) -> Option<u32> {
    u32::try_from(word).ok()
}

/// Device in a word; -1 is the host.
#[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "an int that was widened")]
fn to_device(word: u64) -> i32 {
    word as u32 as i32
}

/// Host node in a word.
fn to_host_node(word: u64) -> Option<u32> {
    word.checked_sub(1).and_then(to_u32)
}

/// Launch number of a kernel in a stream or capture, or of a graph.
#[expect(clippy::cast_possible_truncation, reason = "half of a word")]
const fn number(action: &Action, &Record { words: [_, _, third, _, fifth], .. }: &Record) -> Option<u32> {
    match action {
        Action::Launch { target: Target::Stream(_) | Target::Captured(_), .. } => Some((fifth >> 32) as u32),
        Action::GraphLaunch { .. } => Some(third as u32),
        _ => None,
    }
}

/// End of user space, on any processor and with any page tables.
pub const USER_SPACE_END: u64 = 1 << 56;

/// Whether a range is in user space.
const fn is_in_user_space(address: u64, bytes: u64) -> bool {
    matches!(address.checked_add(bytes), Some(end) if end <= USER_SPACE_END)
}

#[expect(clippy::cast_possible_truncation, reason = "half of a word")]
fn action(kind: Kind, record: &Record, following: &[Record]) -> Option<Action> {
    let [first, second, third, fourth, fifth] = record.words;
    let node = words_of_kind(Kind::Node, following).next().map_or(0, |[_, node, ..]| node);
    let target = Target::from_parts(record.flags >> TARGET_SHIFT, first, node);
    // Copies are exempt: source and destination may be memory of other kinds, with addresses outside of
    // user space.
    let has_range = matches!(kind, Kind::Malloc | Kind::Fill | Kind::Prefetch | Kind::Advise | Kind::Discard);
    if has_range && !is_in_user_space(second, third) {
        return None;
    }
    Some(match kind {
        Kind::Malloc => Action::Malloc {
            stream: first,
            address: second,
            bytes: third,
            kind: MemoryKind::from_number(fourth)?,
            device: to_u32(fifth)?,
        },
        Kind::Free => Action::Free { stream: first, address: second },
        Kind::NotFreed => Action::NotFreed { address: second },
        Kind::Function => Action::Function { function: second, name: name(third, following)? },
        Kind::Launch => Action::Launch {
            target,
            function: second,
            grid: Dim3::from_word(third),
            block: Dim3::from_word(fourth),
            shared_bytes: fifth as u32,
            pointers: if record.flags & ARGUMENTS_UNKNOWN == 0 { Some(pointers(following)?) } else { None },
        },
        Kind::Copy => Action::Copy { target, to: second, from: third, bytes: fourth, rows: fifth },
        Kind::Fill => Action::Fill { target, address: second, bytes: third, rows: fourth },
        Kind::Prefetch => Action::Prefetch {
            stream: first,
            address: second,
            bytes: third,
            to: to_device(fourth),
            host_node: to_host_node(fifth),
        },
        Kind::Discard => Action::Discard { stream: first, address: second, bytes: third },
        Kind::Advise => Action::Advise {
            address: second,
            bytes: third,
            advice: to_u32(fourth)?,
            to: to_device(fifth),
            host_node: to_host_node(first),
        },
        Kind::Sync => Action::Sync { kind: SyncKind::from_number(second)?, handle: first },
        Kind::GraphCaptured => Action::GraphCaptured { capture: second, graph: third },
        Kind::GraphInstantiated => Action::GraphInstantiated { graph: second, executable: third },
        Kind::GraphLaunch => Action::GraphLaunch { stream: first, executable: second },
        Kind::GraphCloned => Action::GraphCloned { graph: second, clone: third },
        Kind::GraphDestroyed => Action::GraphDestroyed { graph: second },
        Kind::ExecutableDestroyed => Action::ExecutableDestroyed { executable: second },
        Kind::Pointers | Kind::Name | Kind::Node => return None,
    })
}

fn name(bytes: u64, following: &[Record]) -> Option<String> {
    let bytes = usize::try_from(bytes).ok().filter(|bytes| *bytes <= NAME_BYTES_MAX)?;
    let all: Vec<u8> = words_of_kind(Kind::Name, following).flatten().flat_map(u64::to_le_bytes).collect();
    if bytes.div_ceil(NAME_BYTES_PER_RECORD) * NAME_BYTES_PER_RECORD != all.len() {
        return None;
    }
    all.get(..bytes).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

fn pointers(following: &[Record]) -> Option<Vec<Pointer>> {
    let mut pointers = Vec::new();
    for record in following.iter().filter(|record| record.kind == Kind::Pointers as u8) {
        let [offsets, addresses @ ..] = record.words;
        for (at, address) in addresses.iter().enumerate().take(record.count.into()) {
            let offset_bytes = u16::try_from(offsets >> (16 * at) & 0xffff).ok()?;
            pointers.push(Pointer { offset_bytes, address: *address });
        }
    }
    (pointers.len() <= POINTERS_MAX).then_some(pointers)
}
