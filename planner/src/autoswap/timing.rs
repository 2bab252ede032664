//! Overhead of a schedule: kernels run one after the other, and so do the transfers of each
//! direction.

use trace::Iteration;

use crate::{Act, Action, Machine, Schedule, Tier};

/// Iterations after which the schedule is in its steady state.
const ITERATIONS: usize = 4;

/// Extra time of an iteration over one with unlimited memory, in the steady state. Only migrations
/// between GPU and host take time. Kernels wait only for migrations that the schedule has done
/// before them.
pub(super) fn overhead_ns(iteration: &Iteration, machine: &Machine, schedule: &Schedule) -> u64 {
    let link = |action: &Action| match action.act {
        Act::Move(Tier::Host) => Some((Direction::Out, &machine.host.out)),
        Act::Move(Tier::Gpu) => Some((Direction::Back, &machine.host.back)),
        Act::Move(Tier::Flash) | Act::Allocate | Act::Drop | Act::HandOn(_) => None,
    };
    let transfer = |action: &Action| {
        let bytes = iteration.tensors()[action.tensor].bytes;
        link(action).map(|(direction, link)| (direction, link.transfer_ns(bytes)))
    };
    let transfers: Vec<_> = schedule.actions().iter().map(transfer).collect();
    let waits = schedule.waits();
    let (mut now_ns, mut duration_ns) = (0_u64, 0);
    let (mut out_free_ns, mut back_free_ns) = (0_u64, 0_u64);
    let mut ends_ns = vec![0_u64; transfers.len()];
    for _ in 0..ITERATIONS {
        let began_ns = now_ns;
        let mut issued = 0;
        let mut waits_left = waits.iter().peekable();
        for (id, kernel) in iteration.kernels().iter() {
            let here = schedule.at(id).len();
            let started = transfers.iter().zip(&mut ends_ns).skip(issued).take(here);
            for (&(direction, transfer_ns), end_ns) in started.filter_map(|(of, end)| of.as_ref().zip(Some(end))) {
                let free_ns = if direction == Direction::Out { &mut out_free_ns } else { &mut back_free_ns };
                *free_ns = now_ns.max(*free_ns) + transfer_ns;
                *end_ns = *free_ns;
            }
            issued += here;
            // A migration that begins at a later kernel belongs to the iteration before.
            while let Some((_, action)) = waits_left.next_if(|(waits_left, _)| *waits_left == id) {
                now_ns = now_ns.max(ends_ns.get(*action).copied().unwrap_or(0));
            }
            now_ns += kernel.duration_ns;
        }
        duration_ns = now_ns - began_ns;
    }
    // Where the transfers of a direction take longer than an iteration, kernels wait for them
    // sooner or later.
    let busy =
        |which| transfers.iter().flatten().filter(|(direction, _)| *direction == which).map(|(_, ns)| ns).sum::<u64>();
    duration_ns.max(busy(Direction::Out)).max(busy(Direction::Back)) - iteration.duration_ns()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Out,
    Back,
}

#[cfg(test)]
mod tests {
    use trace::{Draft, KernelId, Role, Tensor, TensorId, draft::DraftKernel};

    use super::*;
    use crate::{Link, machine::Store};

    #[test]
    fn slow_backlog_of_a_link_costs_its_growth() {
        let tensor = Tensor { name: String::new(), bytes: 50, role: Role::Other, persistent: true };
        let kernel = |duration_ns| DraftKernel { duration_ns, ..DraftKernel::default() };
        let draft = Draft {
            name: String::new(),
            tensors: vec![tensor.clone(), tensor],
            kernels: vec![kernel(1), kernel(94), kernel(4)],
            ..Draft::default()
        };
        let iteration = draft.check().unwrap();
        let link = Link { latency_ns: 0.0, bytes_per_second: 1e9 };
        let machine = Machine { gpu_bytes: 0, host: Store { bytes: 100, out: link, back: link }, flash: None };
        // Transfers take 100 ns in each iteration of 99 ns. The first kernel that waits for this
        // does so after 43 iterations.
        let out = |tensor, done_before: Option<u32>| Action {
            begin: KernelId(1),
            tensor: TensorId(tensor),
            act: Act::Move(Tier::Host),
            part: None,
            done_before: done_before.map(KernelId),
        };
        assert_eq!(overhead_ns(&iteration, &machine, &Schedule::new(vec![out(0, Some(2)), out(1, None)])), 1);
        assert_eq!(overhead_ns(&iteration, &machine, &Schedule::new(vec![out(0, Some(2))])), 0);
        assert_eq!(overhead_ns(&iteration, &machine, &Schedule::new(vec![out(0, Some(1))])), 50);
    }
}
