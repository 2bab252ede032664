//! Programs whose sizes determine their accesses.

use super::Program;
use crate::validation::gpu::{Array, Groups, Process, Space, Steps};

/// Forward pass of a layer of 131,056 units to 16 others, and correction of its weights. Blocks of
/// 16 x 16 threads handle 16 units and their 272 weights. Arrays smaller than a page share one.
pub(crate) fn backprop() -> Program {
    const UNITS: usize = 131_056;
    let mut space = Space::default();
    let units = space.allocate(UNITS + 1);
    let small = space.allocate(1);
    let [weights, copy, previous] = [(); 3].map(|()| space.allocate((UNITS + 1) * 17));
    let sums = space.allocate(UNITS - 16);
    Program::new("backprop", space, move |process| {
        for written in [weights, copy, previous, units] {
            process.cpu(written.pages());
        }
        process.cpu(small.pages());
        let blocks = Groups::blocks(UNITS / 16, 8);
        let own = |block: usize, of: Array| of.words(272 * block + 18, 271);
        process.kernel(blocks, |block| {
            let read: [Vec<_>; 2] = [units.words(16 * block + 1, 16).collect(), own(block, weights).collect()];
            let written: [Vec<_>; 2] = [own(block, weights).collect(), sums.words(16 * block, 1).collect()];
            [read, written].concat()
        })?;
        process.cpu(sums.pages());
        process.cpu([weights.word(1), small.word(0)]);
        process.kernel(blocks, |block| {
            let read = units.words(16 * block + 1, 16).chain([small.word(0)]);
            let read = read.chain(own(block, copy)).chain(own(block, previous));
            vec![read.collect(), own(block, copy).collect(), own(block, previous).collect()]
        })?;
        process.cpu(units.pages());
        process.cpu(copy.pages());
        Ok(())
    })
}

/// Five steps of electromagnetic fields on 1200 x 1200 points, three kernels each. Blocks have 8
/// rows of 32 points, a warp for each row.
pub(crate) fn fdtd() -> Program {
    const SIDE: usize = 1200;
    let mut space = Space::default();
    let source = space.allocate(5);
    // Rows of `ex` are longer by one point; `ey` has one more row.
    let [ex, ey] = [(); 2].map(|()| space.allocate(SIDE * (SIDE + 1)));
    let hz = space.allocate(SIDE * SIDE);
    Program::new("fdtd", space, move |process| {
        process.cpu(source.pages());
        for point in 0..SIDE * SIDE {
            process.cpu([ex, ey, hz].map(|field| field.word(point)));
        }
        let across = SIDE.div_ceil(32);
        let warps = Groups::warps(across * SIDE);
        let point = |warp: usize| {
            let (row, column) = (warp / 8 / across * 8 + warp % 8, warp / 8 % across * 32);
            (row, column, (SIDE - column).min(32))
        };
        for step in 0..5 {
            process.kernel(warps, |warp| {
                let (row, column, count) = point(warp);
                let at = row * SIDE + column;
                let written = ey.words(at, count).collect();
                if row == 0 {
                    return vec![vec![source.word(step)], written];
                }
                let read = ey.words(at, count).chain(hz.words(at, count)).chain(hz.words(at - SIDE, count));
                vec![read.collect(), written]
            })?;
            process.kernel(warps, |warp| {
                let (row, column, count) = point(warp);
                let (at, slanted) = (row * SIDE + column, row * (SIDE + 1) + column);
                let read = ex.words(slanted, count).chain(hz.words(at.saturating_sub(1), count + 1));
                vec![read.collect(), ex.words(slanted, count).collect()]
            })?;
            process.kernel(warps, |warp| {
                let (row, column, count) = point(warp);
                let (at, slanted) = (row * SIDE + column, row * (SIDE + 1) + column);
                let read = hz.words(at, count).chain(ex.words(slanted, count + 1));
                let read = read.chain(ey.words(at + SIDE, count)).chain(ey.words(at, count));
                vec![read.collect(), hz.words(at, count).collect()]
            })?;
        }
        process.cpu((0..SIDE * SIDE).step_by(1000).map(|point| hz.word(point)));
        Ok(())
    })
}

/// Heat on 1024 x 1024 points, 8 steps, two in each kernel. Blocks have 16 x 16 threads, of which
/// the inner 12 x 12 write.
pub(crate) fn hotspot() -> Program {
    const SIDE: usize = 1024;
    let mut space = Space::default();
    let [first, second, power] = [(); 3].map(|()| space.allocate(SIDE * SIDE));
    Program::new("hotspot", space, move |process| {
        process.cpu(first.pages());
        process.cpu(power.pages());
        let across = SIDE.div_ceil(12);
        for (from, to) in [(first, second), (second, first), (first, second), (second, first)] {
            process.kernel(Groups::blocks(across * across, 8), |block| {
                let (row, column) = (block / across * 12, block % across * 12);
                let rows = |from: usize, to: usize, of: Array| {
                    (from..to.min(SIDE)).map(move |row| of.word(row * SIDE + column))
                };
                let outer = |of: Array| rows(row.saturating_sub(2), row + 14, of);
                vec![outer(from).chain(outer(power)).collect(), rows(row, row + 12, to).collect()]
            })?;
        }
        process.cpu(first.pages());
        Ok(())
    })
}

/// Alignment of two sequences of 1024, diagonal by diagonal. Blocks of 16 threads compute 16 x 16
/// scores each. The CPU's path back through the scores is unknown; this one follows the diagonal.
pub(crate) fn nw() -> Program {
    const SIDE: usize = 1025;
    const BLOCKS: usize = 64;
    let mut space = Space::default();
    let [reference, scores] = [(); 2].map(|()| space.allocate(SIDE * SIDE));
    let diagonal = move |process: &mut Process<'_>, length: usize, is_first_half: bool| {
        let first = if is_first_half { length } else { BLOCKS } - 1;
        process.kernel(Groups::blocks(length, 1), |block| -> Steps {
            let (row, column) = (first - block, block + first + 1 - length);
            let corner = (row * SIDE + column) * 16;
            let rows = |of: Array| (1..17).flat_map(move |row| of.words(corner + row * SIDE + 1, 16)).collect();
            let west = (1..17).map(|row| scores.word(corner + row * SIDE)).collect();
            let north = scores.words(corner + 1, 16).collect();
            let mut steps = vec![vec![scores.word(corner)], rows(reference), west, north, rows(scores)];
            if !is_first_half {
                steps.swap(0, 1);
            }
            steps
        })
    };
    Program::new("nw", space, move |process| {
        process.cpu(scores.pages());
        process.cpu(reference.words(SIDE + 1, SIDE * SIDE - SIDE - 1));
        for length in 1..=BLOCKS {
            diagonal(process, length, true)?;
        }
        for length in (1..BLOCKS).rev() {
            diagonal(process, length, false)?;
        }
        for at in (0..SIDE - 1).rev() {
            process.cpu([scores, reference].map(|of| of.word(at * SIDE + at)));
        }
        Ok(())
    })
}
