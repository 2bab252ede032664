//! Programs whose data determine their accesses, on generated graphs and numbers of the same sizes.
#![expect(clippy::indexing_slicing, reason = "nodes are valid indices")]

use super::Program;
use crate::validation::gpu::{Groups, Space};

/// Random access: every hundredth of 2^20 numbers selects a word of a table to read, and a word to
/// write. Each number has a thread.
pub(crate) fn ra() -> Program {
    const WORDS: usize = 1 << 20;
    let mut space = Space::default();
    let [input, output, table] = [(); 3].map(|()| space.allocate(WORDS));
    let program = Program::new("ra", space, move |process| {
        for (input, table) in input.pages().zip(table.pages()) {
            process.cpu([input, table]);
        }
        process.kernel(Groups::warps(WORDS / 32), |warp| {
            let active = (32 * warp..32 * warp + 32).filter(|thread| thread % 100 == 0);
            let steps = active.flat_map(|thread| {
                let at = Dice(thread as u64).below(WORDS);
                [input.word(thread), table.word(at), output.word(at)].map(|page| vec![page])
            });
            steps.collect()
        })?;
        process.cpu(output.pages());
        Ok(())
    });
    Program { has_own_data: true, ..program }
}

/// Breadth-first search of 261,444 nodes from the first, pass by pass, with a thread for each node.
pub(crate) fn bfs() -> Program {
    const NODES: usize = 261_444;
    let edges = neighbours(NODES);
    let first_edge: Vec<usize> = edges
        .iter()
        .scan(0, |sum, of| {
            *sum += of.len();
            Some(*sum - of.len())
        })
        .collect();
    let mut space = Space::default();
    let nodes = space.allocate(2 * NODES);
    // Arrays of one byte per node.
    let [mask, updating, visited] = [(); 3].map(|()| space.allocate(NODES / 4));
    let edge_list = space.allocate(edges.iter().map(Vec::len).sum());
    let cost = space.allocate(NODES);
    let program = Program::new("bfs", space, move |process| {
        for node in 0..NODES {
            process.cpu([nodes.byte(8 * node), mask.byte(node), updating.byte(node), visited.byte(node)]);
        }
        process.cpu(edge_list.pages());
        process.cpu(cost.pages());
        let warps = Groups::warps(NODES.div_ceil(32));
        let threads = |warp: usize| 32 * warp..(32 * warp + 32).min(NODES);
        let mut seen = vec![false; NODES];
        let mut frontier = vec![false; NODES];
        (seen[0], frontier[0]) = (true, true);
        while frontier.contains(&true) {
            process.kernel(warps, |warp| {
                let mut steps = vec![vec![mask.byte(32 * warp)]];
                let active: Vec<usize> = threads(warp).filter(|node| frontier[*node]).collect();
                steps.extend(active.first().map(|node| vec![nodes.byte(8 * node)]));
                for nth in 0..active.iter().map(|node| edges[*node].len()).max().unwrap_or(0) {
                    let ends = active.iter().filter_map(|node| Some((*node, *edges[*node].get(nth)?)));
                    let new = ends.clone().filter(|(_, end)| !seen[*end]);
                    steps.extend([
                        ends.clone().map(|(node, _)| edge_list.word(first_edge[node] + nth)).collect(),
                        ends.map(|(_, end)| visited.byte(end)).collect(),
                        new.clone().map(|(node, _)| cost.word(node)).collect(),
                        new.clone().map(|(_, end)| cost.word(end)).collect(),
                        new.map(|(_, end)| updating.byte(end)).collect::<Vec<_>>(),
                    ]);
                }
                steps
            })?;
            let mut reached = vec![false; NODES];
            for node in (0..NODES).filter(|node| frontier[*node]) {
                edges[node].iter().for_each(|end| reached[*end] = !seen[*end]);
            }
            process.kernel(warps, |warp| {
                let at = 32 * warp;
                let mut steps = vec![vec![updating.byte(at)]];
                if threads(warp).any(|node| reached[node]) {
                    steps.push([mask, visited, updating].map(|of| of.byte(at)).to_vec());
                }
                steps
            })?;
            seen.iter_mut().zip(&reached).for_each(|(seen, reached)| *seen |= reached);
            frontier = reached;
        }
        process.cpu(cost.pages());
        Ok(())
    });
    Program { has_device_memory: true, has_own_data: true, ..program }
}

/// Graph with edges in both directions: each node selects 2 to 4 neighbours, uniformly.
fn neighbours(nodes: usize) -> Vec<Vec<usize>> {
    let mut edges = vec![Vec::new(); nodes];
    let mut dice = Dice(0);
    for node in 0..nodes {
        for _ in 0..2 + dice.below(3) {
            let other = dice.below(nodes);
            edges[node].push(other);
            edges[other].push(node);
        }
    }
    edges
}

/// Shortest paths to 2^20 nodes with two edges each, chosen uniformly, in 15 rounds. Blocks have 16
/// threads, a thread for each node.
pub(crate) fn sssp() -> Program {
    const NODES: usize = 1 << 20;
    let mut dice = Dice(0);
    let edges: Vec<(usize, usize)> = (0..2 * NODES).map(|_| (dice.below(NODES), dice.below(1000))).collect();
    let mut space = Space::default();
    let nodes = space.allocate(NODES);
    let [ends, lengths] = [(); 2].map(|()| space.allocate(2 * NODES));
    let [distances, updates] = [(); 2].map(|()| space.allocate(NODES));
    let program = Program::new("sssp", space, move |process| {
        process.cpu(nodes.pages());
        for (end, length) in ends.pages().zip(lengths.pages()) {
            process.cpu([end, length]);
        }
        let blocks = Groups::blocks(NODES / 16, 1);
        let both = |block: usize| vec![distances.word(16 * block), updates.word(16 * block)];
        process.kernel(blocks, |block| vec![both(block)])?;
        let mut reached = vec![usize::MAX; NODES];
        let mut frontier = vec![false; NODES];
        (reached[0], frontier[0]) = (0, true);
        for _ in 0..15 {
            process.kernel(blocks, |block| {
                let active = (16 * block..16 * block + 16).filter(|node| frontier[*node]);
                let mut steps = vec![active.clone().map(|node| nodes.word(node)).collect::<Vec<_>>()];
                for nth in 0..2 {
                    let edge = active.clone().map(move |node| (node, 2 * node + nth));
                    let read = edge
                        .clone()
                        .flat_map(|(node, edge)| [ends.word(edge), distances.word(node), lengths.word(edge)]);
                    steps.extend([read.collect(), edge.map(|(_, edge)| updates.word(edges[edge].0)).collect()]);
                }
                steps
            })?;
            let mut next = reached.clone();
            for node in (0..NODES).filter(|node| frontier[*node]) {
                for (end, length) in &edges[2 * node..2 * node + 2] {
                    next[*end] = next[*end].min(reached[node] + length);
                }
            }
            frontier = next.iter().zip(&reached).map(|(next, reached)| next < reached).collect();
            reached = next;
            process.kernel(blocks, |block| vec![both(block), vec![updates.word(16 * block)]])?;
        }
        process.cpu(distances.pages());
        Ok(())
    });
    Program { has_device_memory: true, has_own_data: true, ..program }
}

/// Generator of random numbers (splitmix64).
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ mixed >> 31) % limit as u64).unwrap_or_default()
    }
}
