//! Prefetches, discards and advice by location.

use call_ring::call::Action;

use crate::program::Program;

const STREAM: u64 = 0x5000;
const ADDRESSES: [u64; 3] = [0x10_0000, 0x20_0000, 0x30_0000];
const SIZES: [usize; 3] = [4096, 8192, 12288];

/// `CUmemLocation`: type and id.
type Location = [i32; 2];

const DEVICE_1: Location = [1, 1];
const HOST_NODE_2: Location = [3, 2];
const INVISIBLE: Location = [5, -2];

fn prefetch(at: usize, to: i32, host_node: Option<u32>) -> Action {
    Action::Prefetch { stream: STREAM, address: ADDRESSES[at], bytes: SIZES[at] as u64, to, host_node }
}

fn discard(at: usize) -> Action {
    Action::Discard { stream: STREAM, address: ADDRESSES[at], bytes: SIZES[at] as u64 }
}

#[test]
fn prefetch_to_a_host_node_is_recorded_with_the_node() {
    let program = Program::start();
    let function: extern "C" fn(u64, usize, Location2, u32, u64) -> i32 = program.function(c"cuMemPrefetchAsync_v2");
    for location in [DEVICE_1, HOST_NODE_2, INVISIBLE] {
        assert_eq!(function(ADDRESSES[0], SIZES[0], Location2(location), 0, STREAM), 0);
    }
    let expected = [prefetch(0, 1, None), prefetch(0, -1, Some(2)), prefetch(0, -2, None)];
    assert_eq!(program.actions(), expected);
}

/// Location as it is passed by value.
#[repr(C)]
struct Location2(Location);

#[test]
fn advice_for_a_host_node_is_recorded_with_the_node() {
    const PREFERRED_LOCATION: u32 = 3;
    let program = Program::start();
    let function: extern "C" fn(u64, usize, u32, Location2) -> i32 = program.function(c"cuMemAdvise_v2");
    assert_eq!(function(ADDRESSES[0], SIZES[0], PREFERRED_LOCATION, Location2(HOST_NODE_2)), 0);
    let expected = Action::Advise { address: ADDRESSES[0], bytes: 4096, advice: 3, to: -1, host_node: Some(2) };
    assert_eq!(program.actions(), [expected]);
}

#[test]
fn discards_of_a_batch_are_recorded_each() {
    let program = Program::start();
    let function: extern "C" fn(*const u64, *const usize, usize, u64, u64) -> i32 =
        program.function(c"cuMemDiscardBatchAsync");
    assert_eq!(function(ADDRESSES.as_ptr(), SIZES.as_ptr(), 3, 0, STREAM), 0);
    assert_eq!(program.actions(), [0, 1, 2].map(discard));
}

#[test]
fn discard_and_prefetch_are_recorded_as_both_with_the_location_of_each_range() {
    let program = Program::start();
    let function: extern "C" fn(
        *const u64,
        *const usize,
        usize,
        *const Location,
        *const usize,
        usize,
        u64,
        u64,
    ) -> i32 = program.function(c"cuMemDiscardAndPrefetchBatchAsync");
    let (locations, begins) = ([HOST_NODE_2, DEVICE_1], [0, 2]);
    assert_eq!(function(ADDRESSES.as_ptr(), SIZES.as_ptr(), 3, locations.as_ptr(), begins.as_ptr(), 2, 0, STREAM), 0);
    let prefetches = [prefetch(0, -1, Some(2)), prefetch(1, -1, Some(2)), prefetch(2, 1, None)];
    let expected: Vec<Action> = [0, 1, 2].map(discard).into_iter().chain(prefetches).collect();
    assert_eq!(program.actions(), expected);
}

#[test]
fn attachment_to_a_stream_is_not_a_call_of_its_own() {
    let program = Program::start();
    let function: extern "C" fn(u64, u64, usize, u32) -> i32 = program.function(c"cuStreamAttachMemAsync");
    assert_eq!(function(STREAM, ADDRESSES[0], 0, 4), 0);
    assert_eq!(program.actions(), []);
}
