//! Copies of CUDA 12.8 and later.

use std::{
    ptr::{dangling, null_mut},
    sync::atomic::Ordering,
};

use call_ring::{Target, call::Action};

use crate::{driver, program::Program};

const STREAM: u64 = 0x5000;

fn copy(to: u64, from: u64, bytes: u64, rows: u64) -> Action {
    Action::Copy { target: Target::Stream(STREAM), to, from, bytes, rows }
}

type FlatBatch =
    extern "C" fn(*const u64, *const u64, *const usize, usize, *mut u8, *mut usize, usize, *mut usize, u64) -> i32;
type FlatBatchV2 = extern "C" fn(*const u64, *const u64, *const usize, usize, *mut u8, *mut usize, usize, u64) -> i32;

const TO: [u64; 3] = [0x10_0000, 0x20_0000, 0x30_0000];
const FROM: [u64; 3] = [0x90_0000, 0xa0_0000, 0xb0_0000];
const SIZES: [usize; 3] = [100, 0, 300];

#[test]
fn copies_of_a_batch_are_recorded_each() {
    let program = Program::start();
    let expected = [copy(TO[0], FROM[0], 100, 1), copy(TO[2], FROM[2], 300, 1)];
    let batch: FlatBatch = program.function(c"cuMemcpyBatchAsync");
    let arrays = (TO.as_ptr(), FROM.as_ptr(), SIZES.as_ptr());
    assert_eq!(batch(arrays.0, arrays.1, arrays.2, 3, null_mut(), null_mut(), 1, null_mut(), STREAM), 0);
    assert_eq!(program.actions(), expected);
    let batch: FlatBatchV2 = program.function(c"cuMemcpyBatchAsync_v2");
    assert_eq!(batch(arrays.0, arrays.1, arrays.2, 3, null_mut(), null_mut(), 1, STREAM), 0);
    let calls = program.calls();
    assert!(calls.iter().all(|call| call.is_asynchronous));
    assert_eq!(calls.into_iter().map(|call| call.action).collect::<Vec<_>>(), expected);
}

#[test]
fn batch_in_the_default_stream_of_a_thread_is_recorded_there() {
    let program = Program::start();
    let batch: FlatBatchV2 = program.function(c"cuMemcpyBatchAsync_v2_ptsz");
    assert_eq!(batch(TO.as_ptr(), FROM.as_ptr(), SIZES.as_ptr(), 1, null_mut(), null_mut(), 1, 0), 0);
    let stream = driver::CURRENT.load(Ordering::Relaxed) | call_ring::kind::PER_THREAD;
    let target = Target::Stream(stream);
    assert_eq!(program.actions(), [Action::Copy { target, to: TO[0], from: FROM[0], bytes: 100, rows: 1 }]);
}

#[test]
fn batch_that_fails_is_not_recorded() {
    let program = Program::start();
    driver::RESULT.store(1, Ordering::Relaxed);
    let batch: FlatBatchV2 = program.function(c"cuMemcpyBatchAsync_v2");
    // No addresses: the driver has refused them.
    assert_eq!(batch(dangling(), dangling(), dangling(), 3, null_mut(), null_mut(), 1, STREAM), 1);
    assert_eq!(program.actions(), []);
}

/// `CUmemcpy3DOperand` as memory at an address, or as an array.
const fn operand(kind: u64, value: u64) -> [u64; 5] {
    [kind, value, 0, 0, 0]
}

/// `CUDA_MEMCPY3D_BATCH_OP`.
fn operation(from: [u64; 5], to: [u64; 5], extent: [u64; 3]) -> [u64; 14] {
    let mut words = [0; 14];
    words[..5].copy_from_slice(&from);
    words[5..10].copy_from_slice(&to);
    words[10..13].copy_from_slice(&extent);
    words
}

const MEMORY: u64 = 1;
const ARRAY: u64 = 2;

#[test]
fn boxes_of_a_batch_are_recorded_unless_a_side_is_an_array() {
    let program = Program::start();
    let list = [
        operation(operand(MEMORY, FROM[0]), operand(MEMORY, TO[0]), [64, 4, 2]),
        operation(operand(ARRAY, 0x77), operand(MEMORY, TO[1]), [64, 4, 2]),
        operation(operand(MEMORY, FROM[2]), operand(MEMORY, TO[2]), [10, 1, 1]),
    ];
    let expected = [copy(TO[0], FROM[0], 512, 8), copy(TO[2], FROM[2], 10, 1)];
    let unrecorded = program.unrecorded();
    let batch: extern "C" fn(usize, *const [u64; 14], *mut usize, u64, u64) -> i32 =
        program.function(c"cuMemcpy3DBatchAsync");
    assert_eq!(batch(3, list.as_ptr(), null_mut(), 0, STREAM), 0);
    assert_eq!((program.actions(), program.unrecorded()), (expected.to_vec(), unrecorded + 1));
    let batch: extern "C" fn(usize, *const [u64; 14], u64, u64) -> i32 = program.function(c"cuMemcpy3DBatchAsync_v2");
    assert_eq!(batch(3, list.as_ptr(), 0, STREAM), 0);
    assert_eq!((program.actions(), program.unrecorded()), (expected.to_vec(), unrecorded + 2));
}

#[test]
fn copies_with_attributes_are_recorded() {
    let program = Program::start();
    let flat: extern "C" fn(u64, u64, usize, *mut u8, u64) -> i32 = program.function(c"cuMemcpyWithAttributesAsync");
    assert_eq!(flat(TO[0], FROM[0], 4096, null_mut(), STREAM), 0);
    let operation = operation(operand(MEMORY, FROM[1]), operand(MEMORY, TO[1]), [8, 8, 8]);
    let cuboid: extern "C" fn(*const [u64; 14], u64, u64) -> i32 = program.function(c"cuMemcpy3DWithAttributesAsync");
    assert_eq!(cuboid(&raw const operation, 0, STREAM), 0);
    assert_eq!(program.actions(), [copy(TO[0], FROM[0], 4096, 1), copy(TO[1], FROM[1], 512, 64)]);
}

#[test]
fn copies_between_contexts_are_recorded() {
    const DEVICE: u64 = 2;
    let program = Program::start();
    // `CUDA_MEMCPY3D_PEER`: offsets, type, addresses, array, context, pitch and height of each side; size.
    let mut words = [0_u64; 25];
    let side = |device: u64| [16, 2, 1, 0, DEVICE, 0, device, 0, 0x9000, 64, 8];
    words[..11].copy_from_slice(&side(FROM[0]));
    words[11..22].copy_from_slice(&side(TO[0]));
    words[22..].copy_from_slice(&[32, 4, 3]);
    let peer: extern "C" fn(*const u64, u64) -> i32 = program.function(c"cuMemcpy3DPeerAsync");
    assert_eq!(peer(words.as_ptr(), STREAM), 0);
    let offset = (8 + 2) * 64 + 16;
    assert_eq!(program.actions(), [copy(TO[0] + offset, FROM[0] + offset, 32 * 4 * 3, 12)]);
}
