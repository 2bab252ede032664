//! `lab-runner generate`: random scenarios of the whole language, from a seed. Each module of
//! [`scenario::steps`](crate::scenario::steps) generates its steps.

use std::fmt::Write;

use crate::{
    dice::Dice,
    scenario::steps::{self, Plan},
};

/// Machine that the scenario is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    pub(crate) gpu_mem_mib: u64,
    pub(crate) gpus: u32,
}

/// Generate a scenario, which is valid for every seed.
pub(crate) fn scenario(seed: u64, machine: Machine) -> String {
    let mut dice = Dice::new(seed);
    let Machine { gpu_mem_mib, gpus } = machine;
    let mut text = format!(
        "name = \"random-{seed}\"\ndescription = \"Made by lab-runner generate --seed {seed}.\"\ngpu_mem_mib = {gpu_mem_mib}\ngpus = {gpus}\n"
    );
    let processes = dice.between(1, 4);
    // Memory of a process; of all processes together: 0.5 to 2.5 times the memory of a GPU.
    let share_kib = gpu_mem_mib * 1024 * dice.between(1, 5) / 2 / processes;
    for number in 1..=processes {
        text += &process(&mut dice, number, machine, share_kib);
    }
    text
}

fn process(dice: &mut Dice, number: u64, machine: Machine, share_kib: u64) -> String {
    let mut text = format!("\n[[process]]\nname = \"p{number}\"\n");
    // Writing to a string does not fail.
    let mut line = |line: String| {
        let _ = writeln!(text, "{line}");
    };
    let all: Vec<u32> = (0..machine.gpus).collect();
    let gpus = if dice.chance(50) { all } else { vec![all.get(dice.index(all.len())).copied().unwrap_or(0)] };
    line(format!("gpus = {gpus:?}"));
    if dice.chance(25) {
        line(format!("start_after_ms = {}", dice.between(0, 500)));
    }
    if dice.chance(15) {
        line(format!("kill_after_ms = {}", dice.between(50, 1500)));
    }
    let allocations: Vec<(String, u64)> = (1..=dice.between(1, 3))
        .map(|at| {
            let kib = dice.between(64.max(share_kib / 8), share_kib.max(128) / 2);
            // Most allocations end within a page.
            let missing_bytes = if dice.chance(70) { 8 * dice.between(1, 511) } else { 0 };
            (format!("m{at}"), kib * 1024 - missing_bytes)
        })
        .collect();
    line("alloc = [".to_owned());
    for (name, bytes) in &allocations {
        line(format!("    {{ name = \"{name}\", bytes = {bytes} }},"));
    }
    line("]\nsteps = [".to_owned());
    let plan = Plan { allocations: &allocations, gpus: &gpus, depth: 0, in_thread: false };
    let count = dice.between(2, 7);
    for step in steps::generate_list(dice, &plan, count) {
        line(format!("    {step},"));
    }
    match dice.between(1, 100) {
        1..=10 => line(format!("    {{ exit = {} }},", dice.between(0, 255))),
        11..=16 => line("    { kill = true },".to_owned()),
        _ => {}
    }
    line("]".to_owned());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::parse::parse;

    #[test]
    fn scenarios_of_all_seeds_are_valid_and_cover_the_whole_language() {
        let mut all = String::new();
        for seed in 0..500 {
            let machine = Machine { gpu_mem_mib: 64, gpus: 1 + u32::try_from(seed % 2).unwrap() };
            let text = scenario(seed, machine);
            assert_eq!(text, scenario(seed, machine), "it depends on nothing but its seed");
            let parsed = parse("random", &text).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{text}"));
            assert!(parsed.managed_bytes() <= (6 * 64) << 20, "seed {seed} is too large");
            all += &text;
        }
        for key in steps::keys().chain(["start_after_ms", "kill_after_ms", "order", "window", "access_rate", "gpu"]) {
            assert!(all.split_whitespace().any(|word| word == key), "{key}");
        }
    }
}
