//! Stack of the probes: at most 512 bytes for a program and all functions it calls, each frame
//! rounded up to 32 bytes (`check_max_stack_depth` in `kernel/bpf/verifier.c`). Linux from 6.13 on
//! allows more to some programs, and may accept what older ones reject: the instructions are
//! therefore checked here.

use std::collections::BTreeSet;

use aya_obj::{Object, generated::bpf_insn};
use collector::testing::Probes;

const STACK_MAX_BYTES: u64 = 512;
const FRAME_ALIGN_BYTES: u64 = 32;

/// `MAX_CALL_FRAMES`.
const FRAMES_MAX: usize = 8;
/// Register that points to the end of the frame.
const FRAME_POINTER: u8 = 10;
const REGISTERS: usize = 11;

/// Operation codes (`linux/bpf.h`): class masks, and single codes.
mod code {
    pub(super) const CLASS: u8 = 0x07;
    pub(super) const LOAD: u8 = 0x01;
    pub(super) const STORE_IMMEDIATE: u8 = 0x02;
    pub(super) const STORE: u8 = 0x03;
    pub(super) const STORE_8_BYTES: u8 = 0x7b;
    pub(super) const MOVE: u8 = 0xbf;
    pub(super) const ADD_IMMEDIATE: u8 = 0x07;
    pub(super) const CALL: u8 = 0x85;
    /// Source register of a call to a function of the program.
    pub(super) const OWN_FUNCTION: u8 = 1;
}

/// Frame size of a function in bytes: the lowest address derived from the frame pointer.
fn frame_bytes(function: &[bpf_insn]) -> u64 {
    // Distance of each register from the end of the frame, if it points there. Compilers copy the
    // frame pointer right before they add to the copy.
    let mut distances: [Option<i64>; REGISTERS] = [None; REGISTERS];
    distances[usize::from(FRAME_POINTER)] = Some(0);
    let mut lowest = 0;
    for instruction in function {
        let (to, from) = (usize::from(instruction.dst_reg()), usize::from(instruction.src_reg()));
        let accessed = match instruction.code & code::CLASS {
            code::LOAD => distances[from],
            code::STORE | code::STORE_IMMEDIATE => distances[to],
            _ => None,
        };
        if let Some(distance) = accessed {
            lowest = lowest.min(distance + i64::from(instruction.off));
        }
        match (instruction.code, instruction.code & code::CLASS) {
            (code::MOVE, _) => distances[to] = distances[from],
            (code::ADD_IMMEDIATE, _) => {
                distances[to] = distances[to].map(|distance| distance + i64::from(instruction.imm));
                lowest = lowest.min(distances[to].unwrap_or(0));
            }
            (_, code::STORE | code::STORE_IMMEDIATE) => {}
            _ => distances[to] = distances[to].filter(|_| to == usize::from(FRAME_POINTER)),
        }
    }
    lowest.unsigned_abs()
}

/// Start of the program's function that an instruction calls, if any.
fn callee(at: usize, instruction: bpf_insn) -> Option<usize> {
    (instruction.code == code::CALL && instruction.src_reg() == code::OWN_FUNCTION)
        .then(|| at.checked_add_signed(instruction.imm as isize + 1).unwrap())
}

/// Stack bytes from a function on, down the deepest chain of calls.
fn stack_bytes(program: &[bpf_insn], begins: &BTreeSet<usize>, begin: usize, frames: usize) -> u64 {
    assert!(frames < FRAMES_MAX, "too many calls inside calls");
    let end = begins.range(begin + 1..).next().copied().unwrap_or(program.len());
    let calls = (begin..end).filter_map(|at| callee(at, program[at]));
    let deepest = calls.map(|begin| stack_bytes(program, begins, begin, frames + 1)).max().unwrap_or(0);
    frame_bytes(&program[begin..end]).max(1).next_multiple_of(FRAME_ALIGN_BYTES) + deepest
}

#[test]
fn every_probe_fits_the_stack_of_all_kernels() {
    let mut object = Object::parse(Probes::object()).unwrap();
    let sections = object.functions.keys().map(|(section, _)| *section).collect();
    object.relocate_calls(&sections).unwrap();
    let mut deepest = 0;
    for (name, program) in &object.programs {
        let program = &object.functions[&program.function_key()].instructions;
        let calls = program.iter().enumerate().filter_map(|(at, instruction)| callee(at, *instruction));
        let begins = calls.chain([0]).collect();
        let bytes = stack_bytes(program, &begins, 0, 0);
        assert!(bytes <= STACK_MAX_BYTES, "{name}: {bytes} bytes");
        deepest = deepest.max(bytes);
    }
    assert!(deepest > STACK_MAX_BYTES / 2, "frames are found: {deepest} bytes at most");
}

#[test]
fn frame_size_is_its_lowest_address() {
    let instruction = |code, to: u8, from: u8, off, imm| {
        let mut instruction =
            bpf_insn { code, _bitfield_align_1: [], _bitfield_1: bpf_insn::new_bitfield_1(to, from), off, imm };
        instruction.set_dst_reg(to);
        instruction
    };
    let store = instruction(code::STORE_8_BYTES, FRAME_POINTER, 1, -24, 0);
    assert_eq!(frame_bytes(&[store]), 24);
    let copy = instruction(code::MOVE, 2, FRAME_POINTER, 0, 0);
    let add = instruction(code::ADD_IMMEDIATE, 2, 0, 0, -144);
    assert_eq!(frame_bytes(&[store, copy, add]), 144);
    let other = instruction(code::MOVE, 2, 1, 0, 0);
    assert_eq!(frame_bytes(&[copy, other, add]), 0);
}
