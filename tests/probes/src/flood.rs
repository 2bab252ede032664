//! Program in the kernel that fills the ring of block records faster than events can be raised, on
//! the CPU of its caller.
#![expect(unsafe_code, reason = "the bpf system call has no wrapper that takes instructions")]
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "offsets in a record of 48 bytes, and halves of a word"
)]

use std::{
    io,
    mem::offset_of,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use abi::{BlockRecord, RecordKind, block::RESIDENT_UNKNOWN};

/// Records per run: within the kernel's limit for one check.
pub const RECORDS: u32 = 250;
/// Bytes copied per record.
pub const BYTES: i32 = 65536;
/// Blocks of the records, in no order: 32 GiB of memory. A power of two.
pub const BLOCKS: i32 = 16_384;
/// Address of the first block.
const BASE: u64 = 0x7f00_0000_0000;

const PROG_LOAD: libc::c_long = 5;
const PROG_TEST_RUN: libc::c_long = 10;
const RAW_TRACEPOINT: u32 = 17;
const RECORD_BYTES: i16 = size_of::<BlockRecord>() as i16;
const BLOCK_BYTES_LOG2: i32 = 21;
const NO_WAKEUP: i32 = 1;

/// Helpers of the kernel, by number.
mod helper {
    pub(super) const PRANDOM: i32 = 7;
    pub(super) const BOOT_NS: i32 = 125;
    pub(super) const RINGBUF_OUTPUT: i32 = 130;
}

/// Loaded program.
#[derive(Debug)]
pub struct Flood(OwnedFd);

impl Flood {
    /// Loads the program for a ring; its records are copies to GPU 1 in one VA space.
    ///
    /// # Errors
    /// If the kernel rejects it: without root, or before 5.10.
    pub fn new(ring: BorrowedFd<'_>, generation: u64) -> io::Result<Self> {
        let program = instructions(ring.as_raw_fd(), generation);
        // `union bpf_attr` of PROG_LOAD: type, number of instructions, instructions, license; no
        // log.
        let license = c"GPL";
        let count = u32::try_from(program.len()).map_err(io::Error::other)?;
        let attributes = [
            u64::from(RAW_TRACEPOINT) | u64::from(count) << 32,
            program.as_ptr() as u64,
            license.as_ptr() as u64,
            0,
            0,
            0,
            0,
            0,
        ];
        let fd = bpf(PROG_LOAD, &attributes)?;
        // SAFETY: the kernel just created the descriptor for this process.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Writes [`RECORDS`] records, and returns how many found no room.
    ///
    /// # Errors
    /// If the kernel does not run it.
    pub fn run(&self) -> io::Result<u32> {
        // `union bpf_attr` of PROG_TEST_RUN: descriptor, and space for the return value.
        let mut attributes = [u64::from(self.0.as_raw_fd().unsigned_abs()), 0, 0, 0, 0, 0, 0, 0, 0];
        // SAFETY: the kernel reads and writes no more than the size says.
        let status =
            unsafe { libc::syscall(libc::SYS_bpf, PROG_TEST_RUN, attributes.as_mut_ptr(), size_of_val(&attributes)) };
        if status != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(u32::try_from(attributes[0] >> 32).unwrap_or(u32::MAX))
    }
}

fn bpf(command: libc::c_long, attributes: &[u64]) -> io::Result<i32> {
    // SAFETY: the kernel reads no more than the size says; what the attributes point to outlives
    // the call.
    let status = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), size_of_val(attributes)) };
    i32::try_from(status).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)
}

/// `struct bpf_insn`: opcode, registers, offset, immediate.
fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> u64 {
    let [low, high] = offset.to_le_bytes();
    let [a, b, c, d] = immediate.to_le_bytes();
    u64::from_le_bytes([code, to | from << 4, low, high, a, b, c, d])
}

fn instructions(ring: i32, generation: u64) -> Vec<u64> {
    let set = |to, value| instruction(0xb7, to, 0, 0, value);
    let copy = |to, from| instruction(0xbf, to, from, 0, 0);
    let add = |to, value| instruction(0x07, to, 0, 0, value);
    let call = |number| instruction(0x85, 0, 0, 0, number);
    let wide = |to, from, value: u64| {
        let [low, high] = [value as u32, (value >> 32) as u32].map(u32::cast_signed);
        [instruction(0x18, to, from, 0, low), instruction(0, 0, 0, 0, high)]
    };
    // Fields of the record, which is at the top of the stack.
    let field = |offset: usize| offset as i16 - RECORD_BYTES;
    let store = |offset, from| instruction(0x7b, 10, from, field(offset), 0);
    let store_word = |offset, value| instruction(0x62, 10, 0, field(offset), value);
    let store_half = |offset, value| instruction(0x6a, 10, 0, field(offset), value);
    let mut program = vec![set(6, RECORDS.cast_signed()), set(7, 0)];
    let top = program.len();
    program.extend([call(helper::BOOT_NS), store(offset_of!(BlockRecord, boottime_ns), 0)]);
    program.extend(wide(1, 0, generation));
    program.extend([store(offset_of!(BlockRecord, generation), 1), call(helper::PRANDOM)]);
    // Masked, shifted to a block's address, and based.
    program.extend([instruction(0x57, 0, 0, 0, BLOCKS - 1), instruction(0x67, 0, 0, 0, BLOCK_BYTES_LOG2)]);
    program.extend(wide(1, 0, BASE));
    program.extend([
        instruction(0x0f, 0, 1, 0, 0),
        store(offset_of!(BlockRecord, address), 0),
        store_word(offset_of!(BlockRecord, bytes), BYTES),
        store_word(offset_of!(BlockRecord, events), 1),
        store_word(offset_of!(BlockRecord, gpu), 1),
        store_word(offset_of!(BlockRecord, slots), 1),
        store_half(offset_of!(BlockRecord, kind), RecordKind::CopyHtod as i32),
        store_half(offset_of!(BlockRecord, cause), 0),
        store_half(offset_of!(BlockRecord, resident_pages), i32::from(RESIDENT_UNKNOWN)),
        store_half(offset_of!(BlockRecord, resident_pages) + 2, 0),
    ]);
    program.extend(wide(1, 1, u64::from(ring.unsigned_abs())));
    program.extend([
        copy(2, 10),
        add(2, -i32::from(RECORD_BYTES)),
        set(3, i32::from(RECORD_BYTES)),
        set(4, NO_WAKEUP),
        call(helper::RINGBUF_OUTPUT),
        // On success, skips the next instruction.
        instruction(0x15, 0, 0, 1, 0),
        add(7, 1),
        add(6, -1),
    ]);
    let back = top as i64 - program.len() as i64 - 1;
    program.extend([instruction(0x55, 6, 0, back as i16, 0), copy(0, 7), instruction(0x95, 0, 0, 0, 0)]);
    program
}
