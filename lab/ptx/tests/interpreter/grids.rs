//! Cooperative launches, and memory that kernels allocate, as NVRTC compiles them.

use std::sync::{Arc, Mutex};

use crate::common::Argument::{Int, Long};
use crate::common::{Answer, Argument, Buffer, arguments, kernel, load};
use ptx::{Counts, Heap, KernelError, Launch, Module};

const TEXT: &str = include_str!("../kernels/grids.ptx");
const HEAP_BYTES: u64 = 64 << 10;

struct Machine {
    buffer: Buffer,
    module: Module,
    heap: Option<Arc<Mutex<Heap>>>,
    workspace: Option<u64>,
}

impl Machine {
    fn new(answer: Answer) -> Self {
        let mut buffer = Buffer::new(1 << 20, answer);
        let module = load(&[TEXT], &mut buffer);
        Self { buffer, module, heap: None, workspace: None }
    }

    fn run(&mut self, name: &str, grid: u32, block: u32, values: &[Argument]) -> Result<Counts, KernelError> {
        let kernel = kernel(&self.module, name);
        let launch = Launch {
            grid: [grid, 1, 1],
            block: [block, 1, 1],
            arguments: arguments(&kernel, values),
            resident_blocks: 2,
            workspace: self.workspace,
            heap: self.heap.clone(),
            ..Launch::default()
        };
        kernel.run(&launch, &mut self.buffer)
    }
}

#[test]
fn blocks_of_a_cooperative_launch_wait_for_each_other() {
    for answer in [Answer::Resident, Answer::Park, Answer::Remote] {
        let mut machine = Machine::new(answer);
        let (blocks, threads, rounds) = (16, 96, 5);
        let mut values: Vec<u32> = (0u32..blocks * threads).map(|i| i.wrapping_mul(2_654_435_761) >> 16).collect();
        let address = machine.buffer.put(&values);
        machine.workspace = Some(machine.buffer.put(&[0u64]));
        machine.run("rounds", blocks, threads, &[Long(address), Int(rounds)]).expect("the kernel ends");
        for round in 0..rounds as u32 {
            let number = values.len();
            values = (0..number).map(|at| values[(at + 37) % number] + round).collect();
        }
        assert_eq!(machine.buffer.get::<u32>(address, values.len()), values);
    }
}

#[test]
fn a_kernel_knows_whether_its_launch_is_cooperative() {
    let mut machine = Machine::new(Answer::Resident);
    let valid = machine.buffer.put(&[7u32]);
    for workspace in [None, Some(machine.buffer.put(&[0u64]))] {
        machine.workspace = workspace;
        machine.run("is_cooperative", 1, 1, &[Long(valid)]).expect("the kernel ends");
        assert_eq!(machine.buffer.get::<u32>(valid, 1), [u32::from(workspace.is_some())]);
    }
    // A barrier of the grid is an error without.
    machine.workspace = None;
    let error = machine.run("rounds", 1, 1, &[Long(valid), Int(1)]).expect_err("there is no workspace");
    assert!(matches!(error, KernelError::Trap { .. }), "{error}");
}

#[test]
fn memory_of_a_heap_outlives_its_kernel() {
    for answer in [Answer::Resident, Answer::Park] {
        let mut machine = Machine::new(answer);
        let base = machine.buffer.reserve(HEAP_BYTES);
        machine.heap = Some(Arc::new(Mutex::new(Heap::new(base, HEAP_BYTES))));
        let (lists, sums) = (machine.buffer.reserve(64 * 8), machine.buffer.reserve(64 * 4));
        // As much as the heap has, again and again: what is freed is whole again.
        let nodes = HEAP_BYTES / 16;
        for _ in 0..3 {
            machine.run("lists", 1, 64, &[Long(lists), Long(sums)]).expect("the kernel ends");
            let expected: Vec<u32> = (0..64).map(|thread| (0..thread).map(|i| i * i).sum()).collect();
            assert_eq!(machine.buffer.get::<u32>(sums, 64), expected);
            machine.run("free_lists", 1, 64, &[Long(lists), Long(sums)]).expect("the kernel ends");
            assert_eq!(machine.buffer.get::<u32>(sums, 64), (0..64).collect::<Vec<u32>>());
            for (bytes, success) in [(nodes * 16, 1), (nodes * 16 + 1, 0), (u64::MAX, 0), (0, 1)] {
                machine.run("allocates", 1, 1, &[Long(bytes), Long(sums)]).expect("the kernel ends");
                assert_eq!(machine.buffer.get::<u32>(sums, 1), [success], "{bytes} bytes");
            }
        }
    }
}

#[test]
fn a_list_is_freed_once() {
    let mut machine = Machine::new(Answer::Resident);
    let base = machine.buffer.reserve(HEAP_BYTES);
    machine.heap = Some(Arc::new(Mutex::new(Heap::new(base, HEAP_BYTES))));
    let (lists, sums) = (machine.buffer.reserve(64 * 8), machine.buffer.reserve(64 * 4));
    let both = [Long(lists), Long(sums)];
    machine.run("lists", 1, 2, &both).expect("the kernel ends");
    let kernels = ["lists", "free_lists"].map(|name| kernel(&machine.module, name).uses_heap());
    assert_eq!((kernels, kernel(&machine.module, "rounds").uses_heap()), ([true, true], false));
    machine.run("free_lists", 1, 2, &both).expect("the kernel ends");
    machine.run("free_lists", 1, 2, &both).expect_err("the list is freed already");
}

#[test]
fn there_is_nothing_without_a_heap() {
    let mut machine = Machine::new(Answer::Resident);
    let success = machine.buffer.put(&[7u32]);
    machine.run("allocates", 1, 1, &[Long(16), Long(success)]).expect("the kernel ends");
    assert_eq!(machine.buffer.get::<u32>(success, 1), [0]);
}
