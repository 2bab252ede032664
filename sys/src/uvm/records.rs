//! Records of the driver's tools interface (`UvmEventEntry_V1` of its `uvm_types.h`), parsed.
//!
//! A record has 64 bytes, the same in all drivers from 515 to 595. The parser is total: any bytes
//! are a record, of the kind [`Record::Unknown`] if of no other, and every field may have any
//! value. Newer versions of the structures, which MIG needs, are not read.
//!
//! Times in `_ns` are of `CLOCK_MONOTONIC_RAW`. The driver's times of GPUs are not read, as those
//! of two GPUs cannot be compared.

/// Bytes of a record.
pub const RECORD_BYTES: usize = 64;
/// 64-bit words of a record.
pub const RECORD_WORDS: usize = RECORD_BYTES / 8;
/// Number of kinds that the driver has room for, known or not.
pub const KINDS: usize = 64;

/// Defines the kinds of records with their numbers.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $number:literal,)+) => {
        /// Kind of a record (`UvmEventType`). Kinds that no driver writes are omitted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum EventKind { $($(#[$doc])* $kind = $number,)+ }

        impl EventKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind,)+];

            /// Kind of a number; `None` if it is unknown.
            #[must_use]
            pub const fn from_number(number: u8) -> Option<Self> {
                match number {
                    $($number => Some(Self::$kind),)+
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// Fault of a CPU.
    CpuFault = 1,
    /// Copy of consecutive pages.
    Migration = 2,
    /// Fault of a GPU: one record for each instance of an entry.
    GpuFault = 3,
    /// Replay of a GPU's faults. Written to every subscriber, whatever GPUs its VA space has.
    Replay = 4,
    /// Fault that the driver cannot service.
    FatalFault = 6,
    /// Page resident at several processors from now on.
    ReadDuplicate = 7,
    /// Page resident at one processor again.
    ReadDuplicateInvalidate = 8,
    /// Page that the driver found to be thrashing.
    Thrashing = 10,
    /// Start of a processor's throttling.
    ThrottleStart = 11,
    /// End of a processor's throttling.
    ThrottleEnd = 12,
    /// Mapping to memory of another processor.
    MapRemote = 13,
}

impl EventKind {
    /// The driver's number: first byte of a record, and index of the counts by kind.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Bit that subscribes to the kind.
    #[must_use]
    pub const fn mask(self) -> u64 {
        1 << self.number()
    }
}

/// Processor of a record: 0 for the host, otherwise the number of a physical GPU, from 1 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessorIndex(pub u8);

impl ProcessorIndex {
    /// The host.
    pub const CPU: Self = Self(0);

    /// Whether it is the host.
    #[must_use]
    pub const fn is_cpu(self) -> bool {
        self.0 == Self::CPU.0
    }

    /// The driver's processor id, as in the names of its procfs, where a physical GPU has
    /// `ids_per_gpu` of them (`gpu_ids` of the layout): its first one, which is the GPU's own unless
    /// it is partitioned (MIG).
    #[must_use]
    pub fn id(self, ids_per_gpu: u32) -> u32 {
        match u32::from(self.0) {
            0 => 0,
            index => (index - 1).saturating_mul(ids_per_gpu).saturating_add(1),
        }
    }
}

/// Access that faulted (`UvmEventMemoryAccessType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Access {
    /// Load.
    Read,
    /// Store.
    Write,
    /// Atomic, weak or strong.
    Atomic,
    /// Prefetch instruction of a GPU.
    Prefetch,
    /// Unknown number.
    Unknown,
}

impl Access {
    const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Read,
            2 => Self::Write,
            3 => Self::Atomic,
            4 => Self::Prefetch,
            _ => Self::Unknown,
        }
    }
}

/// Cause of a copy (`UvmEventMigrationCause`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MigrationCause {
    /// Request of a process: migration or advice.
    User,
    /// Access of a processor: faults of GPUs and CPUs, and calls about range groups.
    Coherence,
    /// The driver's own prefetcher.
    Prefetch,
    /// Eviction from a GPU.
    Eviction,
    /// Remote accesses, by the GPU's access counters.
    AccessCounters,
    /// Unknown number, or a copy between nodes of the host.
    Unknown,
}

impl MigrationCause {
    const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::User,
            2 => Self::Coherence,
            3 => Self::Prefetch,
            4 => Self::Eviction,
            5 => Self::AccessCounters,
            _ => Self::Unknown,
        }
    }
}

/// Client of a GPU that faulted (`UvmEventFaultClientType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Client {
    /// Graphics and compute: replayable faults, which the driver services in batches.
    Gpc,
    /// Others, such as copy engines: faults that are not replayable, each a batch of its own.
    Hub,
    /// Unknown number.
    Unknown,
}

impl Client {
    const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Gpc,
            2 => Self::Hub,
            _ => Self::Unknown,
        }
    }
}

/// Fault of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuFault {
    /// Access.
    pub access: Access,
    /// Address of the access.
    pub address: u64,
    /// Time of the fault.
    pub time_ns: u64,
    /// Process that faulted, in the initial pid namespace.
    pub pid: u32,
    /// Thread that faulted.
    pub thread: u32,
    /// Program counter in user space.
    pub pc: u64,
}

/// Copy of consecutive pages, which has completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    /// Cause.
    pub cause: MigrationCause,
    /// Source.
    pub source: ProcessorIndex,
    /// Destination.
    pub destination: ProcessorIndex,
    /// First address.
    pub address: u64,
    /// Bytes copied.
    pub bytes: u64,
    /// Time at which the driver gave the copies of the block to the GPU.
    pub begin_ns: u64,
    /// Time at which the driver noticed that they had completed.
    pub end_ns: u64,
}

/// Instance of a GPU fault. The instances that the driver merged into one entry follow each other,
/// with the entry's own first, and with the same address and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuFault {
    /// Access of this instance.
    pub access: Access,
    /// GPU.
    pub gpu: ProcessorIndex,
    /// Client of the GPU.
    pub client: Client,
    /// Address of the page.
    pub address: u64,
    /// Time at which the driver began to service the entry.
    pub time_ns: u64,
    /// Number of the batch, by GPU and client type.
    pub batch: u32,
}

/// Replay of a GPU's faults; of a client other than [`Client::Gpc`], the restart of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replay {
    /// GPU.
    pub gpu: ProcessorIndex,
    /// Client of the GPU.
    pub client: Client,
    /// Number of the batch, as in [`GpuFault`].
    pub batch: u32,
    /// Time at which the driver gave the replay to the GPU.
    pub time_ns: u64,
}

/// Fault that the driver cannot service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FatalFault {
    /// Processor that faulted.
    pub processor: ProcessorIndex,
    /// Access.
    pub access: Access,
    /// The driver's `UvmEventFatalReason`.
    pub reason: u8,
    /// Address of the access.
    pub address: u64,
    /// Time of the fault.
    pub time_ns: u64,
}

/// Memory in which something happened between processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Bit mask of the processors, by index: those that have the memory, or contend for it.
    pub processors: u64,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// Time of the event.
    pub time_ns: u64,
}

impl Region {
    /// First GPU of the mask; the host if it has none.
    #[must_use]
    pub const fn first_gpu(&self) -> ProcessorIndex {
        match self.processors & !1 {
            0 => ProcessorIndex::CPU,
            // At most 63.
            #[expect(clippy::cast_possible_truncation, reason = "the position of a bit")]
            gpus => ProcessorIndex(gpus.trailing_zeros() as u8),
        }
    }
}

/// Start or end of a processor's throttling at a thrashing page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// Processor.
    pub processor: ProcessorIndex,
    /// Address of the page.
    pub address: u64,
    /// Time of the start or end.
    pub time_ns: u64,
}

/// Mapping to memory of another processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRemote {
    /// The driver's `UvmEventMapRemoteCause`.
    pub cause: u8,
    /// Processor that maps the memory.
    pub processor: ProcessorIndex,
    /// Processor that has the memory.
    pub residency: ProcessorIndex,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// Time at which the driver gave the mapping to the processor.
    pub time_ns: u64,
}

/// Record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// [`EventKind::CpuFault`]
    CpuFault(CpuFault),
    /// [`EventKind::Migration`]
    Migration(Migration),
    /// [`EventKind::GpuFault`]
    GpuFault(GpuFault),
    /// [`EventKind::Replay`]
    Replay(Replay),
    /// [`EventKind::FatalFault`]
    FatalFault(FatalFault),
    /// [`EventKind::ReadDuplicate`]
    ReadDuplicate(Region),
    /// [`EventKind::ReadDuplicateInvalidate`], with the one processor that has the memory.
    ReadDuplicateInvalidate(Region),
    /// [`EventKind::Thrashing`]
    Thrashing(Region),
    /// [`EventKind::ThrottleStart`]
    ThrottleStart(Throttle),
    /// [`EventKind::ThrottleEnd`]
    ThrottleEnd(Throttle),
    /// [`EventKind::MapRemote`]
    MapRemote(MapRemote),
    /// Record of an unknown kind.
    Unknown {
        /// Number of the kind.
        number: u8,
    },
}

// === impl Record ===

impl Record {
    /// Record of its bytes, as in memory.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Self {
        let mut words = [0; RECORD_WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Self::from_words(words)
    }

    /// Record of its words, each of eight bytes with the first in the lowest bits.
    #[must_use]
    pub const fn from_words(words: [u64; RECORD_WORDS]) -> Self {
        let [first, second, third, fourth, fifth, ..] = words;
        let [number, one, two, three, four, ..] = first.to_le_bytes();
        let Some(kind) = EventKind::from_number(number) else { return Self::Unknown { number } };
        match kind {
            EventKind::CpuFault => Self::CpuFault(CpuFault {
                access: Access::from_number(one),
                address: second,
                time_ns: third,
                pid: low(fourth),
                thread: high(fourth),
                pc: fifth,
            }),
            EventKind::Migration => Self::Migration(Migration {
                cause: match (two, three) {
                    // The driver writes another enumeration here (`uvm_make_resident_cause_t`).
                    (0, 0) => MigrationCause::Unknown,
                    _ => MigrationCause::from_number(one),
                },
                source: ProcessorIndex(two),
                destination: ProcessorIndex(three),
                address: second,
                bytes: third,
                begin_ns: fourth,
                end_ns: fifth,
            }),
            EventKind::GpuFault => {
                let [.., client, _, _, _] = fifth.to_le_bytes();
                Self::GpuFault(GpuFault {
                    access: Access::from_number(two),
                    gpu: ProcessorIndex(three),
                    client: Client::from_number(client),
                    address: second,
                    time_ns: third,
                    batch: low(fifth),
                })
            }
            EventKind::Replay => Self::Replay(Replay {
                gpu: ProcessorIndex(one),
                client: Client::from_number(two),
                batch: high(first),
                time_ns: second,
            }),
            EventKind::FatalFault => Self::FatalFault(FatalFault {
                processor: ProcessorIndex(three),
                access: Access::from_number(two),
                reason: four,
                address: second,
                time_ns: third,
            }),
            EventKind::ReadDuplicate => {
                Self::ReadDuplicate(Region { processors: second, address: third, bytes: fourth, time_ns: fifth })
            }
            EventKind::ReadDuplicateInvalidate => Self::ReadDuplicateInvalidate(Region {
                processors: match one {
                    0..=63 => 1 << one,
                    _ => 0,
                },
                address: second,
                bytes: third,
                time_ns: fourth,
            }),
            EventKind::Thrashing => {
                Self::Thrashing(Region { processors: second, address: third, bytes: fourth, time_ns: fifth })
            }
            EventKind::ThrottleStart => Self::ThrottleStart(throttle(one, second, third)),
            EventKind::ThrottleEnd => Self::ThrottleEnd(throttle(one, second, third)),
            EventKind::MapRemote => Self::MapRemote(MapRemote {
                cause: three,
                processor: ProcessorIndex(one),
                residency: ProcessorIndex(two),
                address: second,
                bytes: third,
                time_ns: fourth,
            }),
        }
    }

    /// Kind; `None` if it is unknown.
    #[must_use]
    pub const fn kind(&self) -> Option<EventKind> {
        Some(match self {
            Self::CpuFault(_) => EventKind::CpuFault,
            Self::Migration(_) => EventKind::Migration,
            Self::GpuFault(_) => EventKind::GpuFault,
            Self::Replay(_) => EventKind::Replay,
            Self::FatalFault(_) => EventKind::FatalFault,
            Self::ReadDuplicate(_) => EventKind::ReadDuplicate,
            Self::ReadDuplicateInvalidate(_) => EventKind::ReadDuplicateInvalidate,
            Self::Thrashing(_) => EventKind::Thrashing,
            Self::ThrottleStart(_) => EventKind::ThrottleStart,
            Self::ThrottleEnd(_) => EventKind::ThrottleEnd,
            Self::MapRemote(_) => EventKind::MapRemote,
            Self::Unknown { .. } => return None,
        })
    }
}

const fn throttle(processor: u8, address: u64, time_ns: u64) -> Throttle {
    Throttle { processor: ProcessorIndex(processor), address, time_ns }
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half")]
const fn low(word: u64) -> u32 {
    word as u32
}

const fn high(word: u64) -> u32 {
    low(word >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: u64 = 0x7f12_3456_7000;

    /// Record with these fields at byte offsets, and 0 elsewhere. A field has 1, 2, 4 or 8 bytes.
    fn record(fields: &[(usize, &[u8])]) -> Record {
        let mut bytes = [0; RECORD_BYTES];
        for (at, field) in fields {
            bytes[*at..*at + field.len()].copy_from_slice(field);
        }
        Record::from_bytes(&bytes)
    }

    fn word(value: u64) -> [u8; 8] {
        value.to_le_bytes()
    }

    /// A record of each kind, written by a program with the driver's own header, of 535 and of 550:
    /// the bytes are the same.
    const OF_THE_HEADER: &[u8] = include_bytes!("../../../fuzz/corpus/tools_records/each-kind");

    #[test]
    fn records_of_the_drivers_header_are_read_field_by_field() {
        let gpu = ProcessorIndex(1);
        let fault = |time_ns| {
            let (address, client) = (0x7f12_3456_8000, Client::Gpc);
            Record::GpuFault(GpuFault { access: Access::Read, gpu, client, address, time_ns, batch: 12 })
        };
        let copy = |cause, source, destination, address, bytes, begin_ns, end_ns| {
            Record::Migration(Migration { cause, source, destination, address, bytes, begin_ns, end_ns })
        };
        let region = |processors, address, time_ns| Region { processors, address, bytes: 4096, time_ns };
        let throttle = |time_ns| Throttle { processor: ProcessorIndex::CPU, address: 0x7f12_3456_9000, time_ns };
        let expected = [
            Record::CpuFault(CpuFault {
                access: Access::Write,
                address: 0x7f12_3456_7123,
                time_ns: 1000,
                pid: 4242,
                thread: 4243,
                pc: 0x40_1000,
            }),
            fault(2000),
            fault(2000),
            fault(2001),
            Record::Replay(Replay { gpu, client: Client::Gpc, batch: 12, time_ns: 3000 }),
            copy(MigrationCause::Coherence, ProcessorIndex::CPU, gpu, 0x7f12_3456_0000, 65536, 2100, 2200),
            copy(MigrationCause::Eviction, gpu, ProcessorIndex::CPU, 0x7f12_3420_0000, 2 << 20, 2050, 2090),
            copy(MigrationCause::Unknown, ProcessorIndex::CPU, ProcessorIndex::CPU, 0x7f12_3420_0000, 4096, 2050, 2090),
            Record::FatalFault(FatalFault {
                processor: gpu,
                access: Access::Atomic,
                reason: 1,
                address: 0x1000,
                time_ns: 4000,
            }),
            Record::ReadDuplicate(region(0b11, 0x7f12_3456_7000, 4100)),
            Record::ReadDuplicateInvalidate(region(0b10, 0x7f12_3456_7000, 4200)),
            Record::Thrashing(region(0b11, 0x7f12_3456_9000, 4300)),
            Record::ThrottleStart(throttle(4400)),
            Record::ThrottleEnd(throttle(4900)),
            Record::MapRemote(MapRemote {
                cause: 2,
                processor: gpu,
                residency: ProcessorIndex::CPU,
                address: 0x7f12_3456_9000,
                bytes: 4096,
                time_ns: 5000,
            }),
            Record::Unknown { number: 63 },
        ];
        let parsed: Vec<_> = OF_THE_HEADER.as_chunks().0.iter().map(Record::from_bytes).collect();
        assert_eq!(parsed, expected);
    }

    #[test]
    fn cpu_fault_names_thread_and_instruction() {
        let parsed = record(&[
            (0, &[1, 2]),
            (8, &word(ADDRESS + 5)),
            (16, &word(77)),
            (24, &4242_u32.to_le_bytes()),
            (28, &4243_u32.to_le_bytes()),
            (32, &word(0x40_1000)),
        ]);
        let fault = CpuFault {
            access: Access::Write,
            address: ADDRESS + 5,
            time_ns: 77,
            pid: 4242,
            thread: 4243,
            pc: 0x40_1000,
        };
        assert_eq!(parsed, Record::CpuFault(fault));
    }

    #[test]
    fn migration_has_both_processors_and_its_cause() {
        let parsed = record(&[
            (0, &[2, 4, 3, 0]),
            (8, &word(ADDRESS)),
            (16, &word(2 << 20)),
            (24, &word(10)),
            (32, &word(20)),
            // Range group, and times of the GPU.
            (40, &[0xff; 24]),
        ]);
        let migration = Migration {
            cause: MigrationCause::Eviction,
            source: ProcessorIndex(3),
            destination: ProcessorIndex::CPU,
            address: ADDRESS,
            bytes: 2 << 20,
            begin_ns: 10,
            end_ns: 20,
        };
        assert_eq!(parsed, Record::Migration(migration));
    }

    #[test]
    fn copy_between_nodes_of_the_host_has_no_cause() {
        // 4 is an eviction of the enumeration that the driver means to write, and of the other one.
        for number in 0..=8 {
            let Record::Migration(Migration { cause, .. }) = record(&[(0, &[2, number, 0, 0])]) else { panic!() };
            assert_eq!(cause, MigrationCause::Unknown);
        }
    }

    #[test]
    fn causes_of_migrations_are_those_of_the_tools_interface() {
        let cause = |number| match record(&[(0, &[2, number, 0, 1])]) {
            Record::Migration(migration) => migration.cause,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            [1, 2, 3, 4, 5].map(cause),
            [
                MigrationCause::User,
                MigrationCause::Coherence,
                MigrationCause::Prefetch,
                MigrationCause::Eviction,
                MigrationCause::AccessCounters
            ]
        );
        assert_eq!([0, 6, 255].map(cause), [MigrationCause::Unknown; 3]);
    }

    #[test]
    fn gpu_fault_has_batch_and_client() {
        let parsed = record(&[
            // Fault type 2, atomic, GPU 9, and ids of the unit.
            (0, &[3, 2, 3, 9, 0xaa, 0xbb, 0xcc, 0xdd]),
            (8, &word(ADDRESS)),
            (16, &word(99)),
            (24, &word(u64::MAX)),
            (32, &0xdead_beef_u32.to_le_bytes()),
            (36, &[1]),
        ]);
        let fault = GpuFault {
            access: Access::Atomic,
            gpu: ProcessorIndex(9),
            client: Client::Gpc,
            address: ADDRESS,
            time_ns: 99,
            batch: 0xdead_beef,
        };
        assert_eq!(parsed, Record::GpuFault(fault));
    }

    #[test]
    fn accesses_of_faults_are_those_of_the_tools_interface() {
        let access = |number| match record(&[(0, &[3, 0, number])]) {
            Record::GpuFault(fault) => fault.access,
            other => panic!("{other:?}"),
        };
        assert_eq!([1, 2, 3, 4].map(access), [Access::Read, Access::Write, Access::Atomic, Access::Prefetch]);
        assert_eq!([0, 5, 255].map(access), [Access::Unknown; 3]);
    }

    #[test]
    fn replay_has_the_batch_of_its_faults() {
        let parsed = record(&[(0, &[4, 2, 1]), (4, &17_u32.to_le_bytes()), (8, &word(5)), (16, &word(6))]);
        let replay = Replay { gpu: ProcessorIndex(2), client: Client::Gpc, batch: 17, time_ns: 5 };
        assert_eq!(parsed, Record::Replay(replay));
        let Record::Replay(Replay { client, .. }) = record(&[(0, &[4, 2, 2])]) else { panic!() };
        assert_eq!(client, Client::Hub);
    }

    #[test]
    fn fatal_fault_has_its_reason() {
        let parsed = record(&[(0, &[6, 5, 1, 2, 4]), (8, &word(ADDRESS)), (16, &word(8))]);
        let fault =
            FatalFault { processor: ProcessorIndex(2), access: Access::Read, reason: 4, address: ADDRESS, time_ns: 8 };
        assert_eq!(parsed, Record::FatalFault(fault));
    }

    #[test]
    fn read_duplication_names_processors_by_mask_and_its_end_by_index() {
        let region = |processors| Region { processors, address: ADDRESS, bytes: 4096, time_ns: 3 };
        let fields: [(usize, &[u8]); 4] = [(8, &word(0b11)), (16, &word(ADDRESS)), (24, &word(4096)), (32, &word(3))];
        let with = |number: &'static [u8]| record(&[&[(0, number)], fields.as_slice()].concat());
        assert_eq!(with(&[7]), Record::ReadDuplicate(region(0b11)));
        assert_eq!(with(&[10]), Record::Thrashing(region(0b11)));
        let end = |index| record(&[(0, &[8, index]), (8, &word(ADDRESS)), (16, &word(4096)), (24, &word(3))]);
        assert_eq!(end(5), Record::ReadDuplicateInvalidate(region(1 << 5)));
        assert_eq!(end(64), Record::ReadDuplicateInvalidate(region(0)));
    }

    #[test]
    fn throttling_has_a_start_and_an_end() {
        let throttle = Throttle { processor: ProcessorIndex(1), address: ADDRESS, time_ns: 12 };
        let with = |number| record(&[(0, &[number, 1]), (8, &word(ADDRESS)), (16, &word(12))]);
        assert_eq!([with(11), with(12)], [Record::ThrottleStart(throttle), Record::ThrottleEnd(throttle)]);
    }

    #[test]
    fn remote_mapping_names_who_maps_whose_memory() {
        let parsed = record(&[(0, &[13, 2, 1, 5]), (8, &word(ADDRESS)), (16, &word(65536)), (24, &word(4))]);
        let map = MapRemote {
            cause: 5,
            processor: ProcessorIndex(2),
            residency: ProcessorIndex(1),
            address: ADDRESS,
            bytes: 65536,
            time_ns: 4,
        };
        assert_eq!(parsed, Record::MapRemote(map));
    }

    #[test]
    fn kind_is_the_first_byte_and_others_are_unknown() {
        for number in 0..=u8::MAX {
            let parsed = record(&[(0, &[number])]);
            assert_eq!(parsed.kind(), EventKind::from_number(number));
            if parsed.kind().is_none() {
                assert_eq!(parsed, Record::Unknown { number });
            }
        }
        for kind in EventKind::ALL {
            assert_eq!(
                (EventKind::from_number(kind.number()), kind.mask().trailing_zeros()),
                (Some(*kind), u32::from(kind.number()))
            );
            assert!(usize::from(kind.number()) < KINDS);
        }
    }

    #[test]
    fn processor_id_is_the_first_of_the_physical_gpu() {
        // Up to 545 a GPU has one id, from 550 on eight.
        assert_eq!([0, 1, 2, 32].map(|index| ProcessorIndex(index).id(1)), [0, 1, 2, 32]);
        assert_eq!([0, 1, 2, 32].map(|index| ProcessorIndex(index).id(8)), [0, 1, 9, 249]);
        // No number is too large.
        assert_eq!(ProcessorIndex(255).id(u32::MAX), u32::MAX);
    }

    #[test]
    fn first_gpu_of_a_region_is_its_lowest_bit_above_the_host() {
        let first = |processors| Region { processors, address: 0, bytes: 0, time_ns: 0 }.first_gpu();
        assert_eq!([0, 1, 0b11, 0b1101, 1 << 63].map(first), [0, 0, 1, 2, 63].map(ProcessorIndex));
    }
}
