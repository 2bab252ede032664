//! Plans that are meant to harm.

use call_ring::plan::{Destination, MOVES_MAX};

use super::{
    generated::{followed, layers, run},
    replay::{UNIT, replay, uses},
};

#[test]
fn harmful_plan_evicts_after_each_launch_and_copies_more_than_the_driver() {
    // The iteration does not fit on 17 units, and fits on 27.
    for units in [17, 27] {
        let program = run(24, &layers(8));
        let (follower, _) = followed("harmful-plan", units, &program.calls);
        let planned = follower.planned().unwrap_or_else(|| panic!("{:?}", follower.state()));
        let uses = uses(&program.calls, 24);
        let all: usize = uses.iter().map(std::collections::BTreeSet::len).sum();
        assert!(planned.moves.iter().all(|one| one.destination == Destination::Host && one.wait_op.is_none()));
        assert_eq!(planned.moves.iter().map(|one| one.bytes).sum::<u64>(), all as u64 * UNIT);
        assert!(planned.traffic.bytes.total() > planned.traffic_without_plan.bytes.total(), "{planned:?}");
        let replayed = replay(planned, &uses, units);
        assert_eq!((replayed.to_host, replayed.evicted), (planned.traffic.bytes.to_host, 0));
    }
}

#[test]
fn harmful_plan_is_limited_to_the_size_of_a_table() {
    let launches: Vec<Vec<usize>> = (0..3000).map(|at| vec![at % 4, 4 + at % 8]).collect();
    let program = run(12, &launches);
    let (follower, _) = followed("harmful-plan", 9, &program.calls);
    assert_eq!(follower.planned().unwrap().moves.len(), MOVES_MAX);
}
