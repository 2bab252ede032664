//! A grid of blocks.

use std::sync::atomic::{AtomicBool, Ordering};

use super::LANES;
use super::block::Block;
use super::program::Program;
use super::warp::Environment;
use crate::{Counts, KernelError, Launch, Memory};

/// Shared memory of a block at most, as devices from Volta to Turing have it.
const MAX_SHARED_BYTES: u64 = 96 << 10;
/// Turns after which parked warps go on though others have not stopped: these may spin until a parked
/// one has done something. Blocks of a cooperative launch do so all the time.
const SPIN_TURNS: u32 = 64;
/// Threads of a block at most.
const MAX_THREADS: u64 = 1024;

/// Runs a launch to its end, or until it is cancelled.
pub(crate) fn run(
    program: &Program,
    launch: &Launch,
    memory: &mut dyn Memory,
    cancel: Option<&AtomicBool>,
) -> Result<Counts, KernelError> {
    let threads = check(program, launch)?;
    let blocks = launch.grid.iter().try_fold(1u64, |blocks, &extent| blocks.checked_mul(u64::from(extent)));
    let blocks = blocks.ok_or_else(|| refused("the grid is too large"))?;
    let resident = launch.resident_blocks.max(1) as usize;
    let mut counts = Counts::default();
    let window = memory.window();
    let mut env = Environment {
        program,
        arguments: &launch.arguments,
        memory,
        window,
        counts: &mut counts,
        heap: launch.heap.as_deref(),
        addresses: [0; LANES],
    };
    let mut next = 0;
    // Blocks with a warp that can go on; those without one, which a turn does not look at; and ended ones,
    // to be used again.
    let (mut ready, mut stopped, mut spare) = (Vec::<Block>::new(), Vec::<Block>::new(), Vec::<Block>::new());
    let cooperative = launch.workspace.is_some();
    if cooperative {
        for index in 0..blocks {
            let mut block = Block::new(program, launch, threads);
            block.start(program, launch, threads, position(launch.grid, index));
            ready.push(block);
        }
        next = blocks;
    }
    let mut turns = 0;
    loop {
        // A turn of all warps: each executes a slice.
        if cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed)) {
            return Err(KernelError::Cancelled);
        }
        for block in &mut ready {
            block.run(&mut env)?;
        }
        for block in ready.extract_if(.., |block| !block.is_ready()) {
            if block.ended() { spare.push(block) } else { stopped.push(block) }
        }
        turns += 1;
        if cooperative || turns >= SPIN_TURNS {
            turns = 0;
            if ready.iter().chain(&stopped).any(Block::parked) {
                env.memory.settle()?;
                ready.iter_mut().chain(&mut stopped).for_each(Block::unpark);
                ready.extend(stopped.extract_if(.., |block| block.is_ready()));
            }
        }
        if !ready.is_empty() {
            continue;
        }
        if next < blocks && stopped.len() < resident {
            let mut block = spare.pop().unwrap_or_else(|| Block::new(program, launch, threads));
            block.start(program, launch, threads, position(launch.grid, next));
            ready.push(block);
            next += 1;
        } else if stopped.is_empty() {
            return Ok(counts);
        } else if stopped.iter().any(Block::parked) {
            env.memory.settle()?;
            stopped.iter_mut().for_each(Block::unpark);
            ready.extend(stopped.extract_if(.., |block| block.is_ready()));
        } else {
            let line = stopped.iter().find_map(|block| block.waiting_line(program)).unwrap_or_default();
            return Err(KernelError::Deadlock { line });
        }
    }
}

/// Checks a launch; returns the threads of a block.
fn check(program: &Program, launch: &Launch) -> Result<u32, KernelError> {
    let threads: u64 =
        launch.block.iter().try_fold(1, |all: u64, &axis| all.checked_mul(u64::from(axis))).unwrap_or(u64::MAX);
    let shared = u64::from(program.shared_bytes) + u64::from(launch.dynamic_shared_bytes);
    if launch.grid.contains(&0) || launch.block.contains(&0) {
        return Err(refused("an extent of grid or block is 0"));
    }
    if threads > MAX_THREADS.min(u64::from(program.max_threads)) {
        return Err(refused(&format!("{threads} threads in a block")));
    }
    if shared > MAX_SHARED_BYTES {
        return Err(refused(&format!("{shared} bytes of shared memory")));
    }
    if launch.arguments.len() < program.argument_bytes as usize {
        return Err(refused("arguments are missing"));
    }
    Ok(threads as u32)
}

fn refused(reason: &str) -> KernelError {
    KernelError::Refused { reason: reason.to_owned() }
}

/// Position of a block in the grid, x first.
fn position([width, height, _]: [u32; 3], index: u64) -> [u32; 3] {
    let (width, height) = (u64::from(width), u64::from(height));
    [(index % width) as u32, (index / width % height) as u32, (index / width / height) as u32]
}
