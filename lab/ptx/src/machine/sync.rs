//! Instructions that wait for lanes of their own warp: shuffles, votes, matches.

#![expect(clippy::indexing_slicing, reason = "lanes are below 32, and registers are the compiler's")]

use super::group::{Group, Wait};
use super::program::{Action, Compute, Program};
use super::state::State;
use super::{LANES, lanes};

/// Lanes that share a member mask.
struct Members {
    lanes: u32,
    /// Named lanes that have not exited.
    needed: u32,
}

/// Splits lanes by their member masks.
fn split(state: &State, register: usize, mask: u32) -> impl Iterator<Item = Members> {
    let masks: &[u32; LANES] = &state.words[register];
    let mut rest = mask;
    std::iter::from_fn(move || {
        let first = lanes(rest).next()?;
        let same = lanes(rest).filter(|&lane| masks[lane] == masks[first]).fold(0, |found, lane| found | 1 << lane);
        rest &= !same;
        Some(Members { lanes: same, needed: masks[first] & state.live })
    })
}

/// Performs the work for those lanes whose members are all there; returns these lanes.
pub(super) fn perform(state: &mut State, register: usize, mask: u32, work: &Compute) -> u32 {
    let complete: Vec<u32> = split(state, register, mask)
        .filter(|members| members.needed & !members.lanes == 0)
        .map(|members| members.lanes)
        .collect();
    for &lanes in &complete {
        work(state, lanes);
    }
    complete.iter().fold(0, |all, lanes| all | lanes)
}

/// Makes groups ready whose members have come or exited since; false if there are none.
pub(super) fn release(state: &State, program: &Program, groups: &mut [Group]) -> bool {
    let mut released = false;
    // Lanes at `bar.warp.sync` meet at different instructions, too.
    let at_barrier = |group: &Group| {
        group.wait == Wait::Members
            && matches!(program.instructions[group.pc as usize].action, Action::Sync { rendezvous: true, .. })
    };
    let meeting = groups.iter().filter(|group| at_barrier(group)).fold(0, |all, group| all | group.mask);
    for group in groups.iter_mut().filter(|group| group.wait == Wait::Members) {
        let Action::Sync { members, .. } = program.instructions[group.pc as usize].action else { continue };
        let there = |members: Members| members.needed & !members.lanes == 0;
        if split(state, members, group.mask).any(there) {
            group.wait = Wait::Nothing;
            released = true;
        }
    }
    if released {
        return true;
    }
    for group in groups.iter_mut() {
        let Action::Sync { members, .. } = program.instructions[group.pc as usize].action else { continue };
        if at_barrier(group) && split(state, members, group.mask).all(|members| members.needed & !meeting == 0) {
            group.wait = Wait::Nothing;
            group.pc += 1;
            released = true;
        }
    }
    released
}
