//! Table of NVIDIA's tests: `uvm_test.c` and `uvm_test_ioctl.h` of the driver's source.

use super::parameters::Item::{self, From550, Gpu, Managed, RangeGroup, U32, U64};
use crate::sys::builtin::TestNumber;

/// Test of the driver.
pub(crate) struct Test {
    /// Name, without `UVM_TEST_`.
    pub(crate) name: &'static str,
    /// Name of the variant, if the test has several.
    pub(crate) part: &'static str,
    pub(crate) number: TestNumber,
    /// Parameters, up to the status.
    pub(crate) items: &'static [Item],
    /// Parts of the messages that the test provokes from the driver.
    pub(crate) provoked_messages: &'static [&'static str],
    /// Channel errors that the test provokes.
    pub(crate) channel_errors: u64,
    /// Reason why it cannot run here, if it cannot.
    pub(crate) unsupported: Option<&'static str>,
}

const fn test(name: &'static str, number: u8, items: &'static [Item]) -> Test {
    Test {
        name,
        part: "",
        number: TestNumber(number),
        items,
        provoked_messages: &[],
        channel_errors: 0,
        unsupported: None,
    }
}

const fn part(name: &'static str, part: &'static str, number: u8, items: &'static [Item]) -> Test {
    Test { part, ..test(name, number, items) }
}

const fn unsupported(name: &'static str, number: u8, reason: &'static str) -> Test {
    Test { unsupported: Some(reason), ..test(name, number, &[]) }
}

const SEED: Item = U32(20_261_121);
const MIB: u64 = 1 << 20;
/// Root chunk: unit in which the driver splits and allocates the GPU's memory.
const CHUNK_BYTES: u64 = 2 * MIB;

const NEEDS_LAYOUT: &str = "works on memory that NVIDIA's own user-space test lays out first, which is not public";
const NEEDS_KEYS: &str = "tests confidential computing, which the software GPU leaves out";
const NEEDS_TWO: &str = "needs two GPUs";
const NEEDS_NUMA_GPU: &str = "needs a GPU whose memory the kernel manages as a NUMA node";

const FATAL_INVALID_STATE: &str = "Encountered a global fatal error: Generic Error: Invalid state";

/// All tests, in the order of their runs.
pub(crate) static TESTS: &[Test] = &[
    // Data structures and utilities of the driver.
    test("RNG_SANITY", 1, &[]),
    test("RANGE_TREE_DIRECTED", 2, &[]),
    // Seed, iterations, verbosity; probabilities of adding and of shrinking; checks; limits; then
    // its statistics.
    test(
        "RANGE_TREE_RANDOM",
        3,
        &[
            SEED,
            U64(2000),
            U32(0),
            U32(90),
            U32(50),
            U32(25),
            U32(10),
            U32(10),
            U64(u64::MAX),
            U64(1000),
            U64(10),
            U32(5),
            U64(0),
            U64(0),
            U64(0),
            U64(0),
            U64(0),
            U64(0),
            U64(0),
            U64(0),
            U64(0),
            U64(0),
            U64(0),
            U64(0),
        ],
    ),
    test("RB_TREE_DIRECTED", 86, &[]),
    test("RB_TREE_RANDOM", 87, &[U64(2000), U64(u64::MAX), U32(500), SEED]),
    test("RANGE_GROUP_TREE", 47, &[RangeGroup(0), RangeGroup(1), RangeGroup(2), RangeGroup(3)]),
    test("RANGE_ALLOCATOR_SANITY", 25, &[U32(0), SEED, U32(200)]),
    // Breaks every rule of locking once.
    Test { provoked_messages: &["uvm_lock.c:"], ..test("LOCK_SANITY", 18, &[]) },
    test("KVMALLOC", 20, &[]),
    test("NV_KTHREAD_Q", 45, &[]),
    test("THREAD_CONTEXT_SANITY", 81, &[U32(20)]),
    test("THREAD_CONTEXT_PERF", 82, &[U32(20), U32(0), U64(0)]),
    test("PERF_UTILS_SANITY", 19, &[]),
    test("PERF_EVENTS_SANITY", 23, &[]),
    test("PERF_MODULE_SANITY", 24, &[Managed, U32(4 << 20)]),
    test("CPU_CHUNK_API", 100, &[]),
    test("CGROUP_ACCOUNTING_SUPPORTED", 96, &[]),
    // GPU memory.
    test("RM_MEM_SANITY", 5, &[]),
    test("MEM_SANITY", 30, &[]),
    part("PMM_SANITY", "basic", 40, &[U32(2)]),
    part("PMM_SANITY", "full", 40, &[U32(1)]),
    test("PMM_CHECK_LEAK", 22, &[Gpu, U64(CHUNK_BYTES), U64(u64::MAX), U64(0)]),
    test("PMM_ASYNC_ALLOC", 36, &[Gpu, U32(4), U32(20)]),
    part("PMA_ALLOC_FREE", "contiguous", 53, &[Gpu, U32(2 << 20), U32(1), U64(1), U64(0), U64(0), U32(0)]),
    part("PMA_ALLOC_FREE", "scattered", 53, &[Gpu, U32(2 << 20), U32(0), U64(4), U64(0), U64(0), U32(0)]),
    test("PMM_ALLOC_FREE_ROOT", 54, &[Gpu, U32(0)]),
    test("PMM_RELEASE_FREE_ROOT_CHUNKS", 73, &[Gpu]),
    unsupported("PMM_INDIRECT_PEERS", 66, NEEDS_NUMA_GPU),
    unsupported("PMM_CHUNK_WITH_ELEVATED_PAGE", 69, NEEDS_NUMA_GPU),
    unsupported("PMM_SYSMEM", 64, NEEDS_LAYOUT),
    unsupported("PMM_REVERSE_MAP", 65, NEEDS_LAYOUT),
    test("VA_BLOCK", 42, &[]),
    // Runs on fake GPUs with incomplete fields, which asserts of a debug build notice.
    Test {
        provoked_messages: &[
            "condition gpu->mem_info.max_vidmem_page_size & tree->hal->page_sizes() not true",
            "Call Trace:",
        ],
        ..test("PAGE_TREE", 10, &[])
    },
    // Engines and channels of the GPU.
    // Semaphores that jump further than allowed.
    Test {
        provoked_messages: &[
            "condition new_value - old_value <= UVM_GPU_SEMAPHORE_MAX_JUMP not true",
            FATAL_INVALID_STATE,
        ],
        ..test("GPU_SEMAPHORE_SANITY", 6, &[])
    },
    test("TRACKER_SANITY", 12, &[]),
    test("PUSH_SANITY", 13, &[U32(0)]),
    test("CE_SANITY", 16, &[U32(0)]),
    test("HOST_SANITY", 88, &[]),
    unsupported("SEC2_SANITY", 95, NEEDS_KEYS),
    unsupported("SEC2_CPU_GPU_ROUNDTRIP", 99, NEEDS_KEYS),
    part("CHANNEL_STRESS", "no-ops", 15, &[U32(0), U32(200), U32(0), From550(0), SEED, U32(0)]),
    part("CHANNEL_STRESS", "channels made anew", 15, &[U32(1), U32(20), U32(0), From550(0), SEED, U32(0)]),
    part("CHANNEL_STRESS", "streams", 15, &[U32(2), U32(200), U32(8), From550(0), SEED, U32(0)]),
    // A channel that completes more than was submitted, and one that writes to an unmapped address.
    Test {
        provoked_messages: &[
            "condition completed_value <= channel->tracking_sem.queued_value not true",
            FATAL_INVALID_STATE,
            "copy engine writes at virtual address 0xffffffff, which is no memory",
            "Detected a channel error",
            "in uvm_test_rc_for_gpu()",
            "Encountered a global fatal error: Generic RC error",
        ],
        channel_errors: 1,
        ..test("CHANNEL_SANITY", 14, &[])
    },
    // Faults.
    test("FAULT_BUFFER_FLUSH", 27, &[U64(20)]),
    test("DRAIN_REPLAYABLE_FAULTS", 74, &[Gpu, U64(1_000_000_000)]),
    test("TOOLS_FLUSH_REPLAY_EVENTS", 84, &[Gpu]),
    test("GET_GPU_TIME", 70, &[Gpu, U64(0)]),
    unsupported("NUMA_CHECK_AFFINITY", 78, "needs a machine with several NUMA nodes"),
    test("MAKE_CHANNEL_STOPS_IMMEDIATE", 32, &[]),
    unsupported("PEER_IDENTITY_MAPPINGS", 34, NEEDS_TWO),
];
