use trace::{
    Tensor,
    draft::{Draft, DraftKernel},
};

use super::*;
use crate::{Link, machine::Store};

const MIB: u64 = 1 << 20;

fn store(bytes: u64, bytes_per_second: f64) -> Store {
    let link = Link { latency_ns: 1000.0, bytes_per_second };
    Store { bytes, out: link, back: link }
}

fn machine(gpu_bytes: u64) -> Machine {
    Machine { gpu_bytes, host: store(100 * MIB, 16e9), flash: Some(store(u64::MAX, 3e9)) }
}

fn random_iteration(seed: u64) -> Iteration {
    let mut state = seed;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut draft = Draft::default();
    for index in 0..30 {
        let bytes = (1 + next(20)) * MIB;
        draft.tensor(Tensor { name: String::new(), bytes, role: trace::Role::Other, persistent: index < 5 });
    }
    for _ in 0..60 {
        let mut some = |count: u64| (0..count).map(|_| TensorId(u32::try_from(next(30)).unwrap())).collect();
        let (inputs, outputs) = (some(2), some(1));
        draft.kernel(DraftKernel { name: String::new(), duration_ns: next(3_000_000), inputs, outputs });
    }
    draft.check().unwrap()
}

#[test]
fn heap_selects_the_same_as_a_full_scan() {
    let mut selected = 0;
    for seed in 0..20 {
        let (iteration, machine) = (random_iteration(seed), machine((60 + seed * 8) * MIB));
        for ranking in [Ranking::Benefit, Ranking::BenefitByCost] {
            let parameters = Parameters { ranking, system_ns: 0.0, ..Parameters::default() };
            let footprints = lifetimes::footprints(&iteration);
            let new = || Choice::new(&iteration, &machine, &parameters, &footprints);
            let (mut slow, mut expected) = (new(), Vec::new());
            let mut left: Vec<_> = slow.idle.clone().into_iter().enumerate().collect();
            while slow.pressure_ns.total() > 0 {
                left.retain(|(_, idle)| slow.worth(idle) > 0);
                left.sort_by_key(|(at, idle)| slow.rank(*at, idle));
                let Some((_, idle)) = left.pop() else { break };
                expected.extend(slow.migration(idle).map(|migration| slow.commit(migration)));
            }
            selected += expected.len();
            assert_eq!(new().run(), (expected, slow.load), "seed {seed}");
        }
    }
    assert!(selected > 200, "{selected}");
}

#[test]
fn capacities_of_links_and_host_are_not_exceeded() {
    for seed in 0..20 {
        let (iteration, machine) = (random_iteration(seed), machine((60 + seed * 8) * MIB));
        let parameters = Parameters { system_ns: 0.0, ..Parameters::default() };
        let footprints = lifetimes::footprints(&iteration);
        let (selected, load) = Choice::new(&iteration, &machine, &parameters, &footprints).run();
        let kernels = iteration.kernels().len();
        // Between any two positions, all bytes that must migrate there fit the link; so do all that
        // must return.
        for (from, to) in (0..kernels).flat_map(|from| (from..from + kernels).map(move |to| (from, to))) {
            let carried: u64 = (from..to)
                .map(|at| machine.host.out.carried_bytes(iteration.kernels().values()[at % kernels].duration_ns))
                .sum();
            let within = |begin: usize, end: usize| from <= begin && end <= to;
            let out: u64 = selected.iter().filter(|of| within(of.idle.from, of.freed)).map(|of| of.idle.bytes).sum();
            let back: u64 = selected.iter().filter(|of| within(of.fetch, of.idle.to)).map(|of| of.idle.bytes).sum();
            assert!(out <= carried && back <= carried, "seed {seed}, {from}..{to}: {out} and {back} of {carried}");
        }
        let mut on_host = vec![0; kernels];
        let mut expected = lifetimes::load_bytes(&iteration, &footprints);
        for of in &selected {
            assert!(of.idle.from <= of.begin && of.begin < of.freed && of.freed < of.fetch && of.fetch < of.idle.to);
            for at in (of.idle.from..of.idle.to).filter(|_| of.tier == Tier::Host) {
                on_host[at % kernels] += of.idle.bytes;
            }
            (of.freed..of.fetch).for_each(|at| expected[kernel_at(&iteration, at)] -= of.idle.bytes);
        }
        assert!(on_host.iter().all(|&bytes| bytes <= machine.host.bytes));
        assert_eq!(load, expected);
    }
}

#[test]
fn long_idle_tensors_go_to_flash_then_to_the_host() {
    let mut draft = Draft::default();
    let tensor = |persistent| Tensor { name: String::new(), bytes: 20 * MIB, role: trace::Role::Other, persistent };
    let idle: Vec<_> = (0..4).map(|_| draft.tensor(tensor(true))).collect();
    let busy = draft.tensor(tensor(false));
    let mut kernel = |inputs: Vec<TensorId>, outputs, duration_ns| {
        draft.kernel(DraftKernel { name: String::new(), duration_ns, inputs, outputs })
    };
    // Flash takes 7 ms in each direction for one of them; all four have to migrate.
    kernel(idle.clone(), vec![], 1_000_000);
    (0..32).for_each(|_| _ = kernel(vec![], vec![busy], 1_000_000));
    let iteration = draft.check().unwrap();
    let parameters = Parameters { system_ns: 0.0, margin: 2.0, ..Parameters::default() };
    let footprints = lifetimes::footprints(&iteration);
    let (selected, _) = Choice::new(&iteration, &machine(24 * MIB), &parameters, &footprints).run();
    let tiers: Vec<_> = selected.iter().map(|of| of.tier).collect();
    assert_eq!(tiers, [Tier::Flash, Tier::Flash, Tier::Host, Tier::Host]);
}
#[test]
fn tensor_that_flash_is_too_slow_for_goes_to_the_host() {
    let mut draft = Draft::default();
    let tensor = |persistent| Tensor { name: String::new(), bytes: 20 * MIB, role: trace::Role::Other, persistent };
    let (idle, busy) = (draft.tensor(tensor(true)), draft.tensor(tensor(false)));
    let mut kernel =
        |inputs, outputs| draft.kernel(DraftKernel { name: String::new(), duration_ns: 1_000_000, inputs, outputs });
    kernel(vec![idle], vec![]);
    (0..6).for_each(|_| _ = kernel(vec![], vec![busy]));
    let iteration = draft.check().unwrap();
    // Within six milliseconds flash cannot return half of it.
    let machine = Machine { flash: Some(store(u64::MAX, 1e9)), ..machine(24 * MIB) };
    let parameters = Parameters { system_ns: 0.0, ..Parameters::default() };
    let footprints = lifetimes::footprints(&iteration);
    for ranking in [Ranking::Benefit, Ranking::BenefitByCost] {
        let parameters = Parameters { ranking, ..parameters };
        let (selected, _) = Choice::new(&iteration, &machine, &parameters, &footprints).run();
        assert_eq!(selected.iter().map(|of| of.tier).collect::<Vec<_>>(), [Tier::Host]);
    }
}
