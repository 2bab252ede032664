//! Scenario variants whose label is known after they have run. Each has one access pattern for long
//! enough to be judged, or several in sequence.
//!
//! The label comes from the page events of the run alone, not from the intention of the variant.

use std::fmt::Write as _;

use super::program::{self, Program, Share};
use crate::dice::Dice;

/// A variant, as a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variant {
    pub(crate) name: String,
    pub(crate) gpu_mem_mib: u64,
    /// Whether the driver must detect thrashing as slow as in the lab.
    pub(crate) throttling: bool,
    pub(crate) text: String,
}

type Generate = fn(&mut Dice, Share) -> Vec<Program>;

/// A family of variants: its programs, and their memory on each guest.
#[derive(Clone, Copy)]
struct Family {
    name: &'static str,
    generate: Generate,
    quick: bool,
    /// Memory of the GPU in MiB, and the amount of a [`Share`].
    on: &'static [(u64, u64)],
    throttling: bool,
}

const fn family(name: &'static str, generate: Generate, on: &'static [(u64, u64)]) -> Family {
    Family { name, generate, quick: false, on, throttling: false }
}

const fn throttling(name: &'static str, generate: Generate, on: &'static [(u64, u64)]) -> Family {
    Family { throttling: true, ..family(name, generate, on) }
}

/// Family whose first variant is in `--quick`.
const fn quick(family: Family) -> Family {
    Family { quick: true, ..family }
}

const FAMILIES: [Family; 27] = [
    quick(family("cyclic", program::cyclic, &[(32, 150), (16, 130), (16, 400), (32, 250), (48, 125), (48, 200)])),
    family("random", program::random, &[(16, 200), (32, 150), (32, 400), (48, 250)]),
    family("strided", program::strided, &[(16, 150), (32, 200), (48, 250)]),
    family("hot_cold", program::hot_cold, &[(16, 250), (32, 200), (48, 150)]),
    quick(family("fits", program::fits, &[(32, 75), (16, 50), (48, 85)])),
    family("fits_random", program::fits_random, &[(16, 80), (32, 60)]),
    quick(family("once", program::once, &[(32, 400), (16, 200), (16, 400), (32, 300)])),
    family("once_touched", program::once_touched, &[(16, 400), (32, 300)]),
    quick(family("first_touch", program::first_touch, &[(32, 85), (48, 80), (48, 60)])),
    quick(family("ping_pong", program::ping_pong, &[(32, 8), (16, 2), (16, 6), (48, 16)])),
    family("ping_pong_random", program::ping_pong_random, &[(16, 4), (32, 12)]),
    family("ping_pong_read", program::ping_pong_read, &[(32, 6)]),
    family("two_buffers", program::two_buffers, &[(16, 4), (32, 8)]),
    family("ping_pong_over", program::ping_pong_over, &[(16, 150)]),
    family("loaded", program::loaded, &[(48, 80)]),
    family("tenants_fit", program::tenants_fit, &[(16, 70), (32, 80)]),
    family("tenants", program::tenants, &[(32, 160), (16, 150)]),
    family("three_tenants", program::three_tenants, &[(48, 180)]),
    quick(family("victim", program::victim, &[(32, 250), (48, 200)])),
    family("pressure", program::pressure, &[(32, 70)]),
    family("fits_then_cyclic", program::fits_then_cyclic, &[(16, 150), (32, 200)]),
    family("cyclic_then_fits", program::cyclic_then_fits, &[(16, 200)]),
    family("ping_pong_then_fits", program::ping_pong_then_fits, &[(32, 8)]),
    quick(throttling("contended", program::contended, &[(32, 256), (32, 64), (32, 1024)])),
    throttling("contended_in_turns", program::contended_in_turns, &[(32, 512)]),
    throttling("ping_pong_slow", program::ping_pong_slow, &[(32, 4)]),
    throttling("cyclic_slow", program::cyclic, &[(32, 170)]),
];

/// All variants, or the few that show each kind once. The result depends on the seed only.
pub(crate) fn all(seed: u64, only_quick: bool) -> Vec<Variant> {
    let mut variants = Vec::new();
    for (family, salt) in FAMILIES.iter().zip(0..) {
        for (&(gpu_mem_mib, amount), number) in family.on.iter().zip(0..) {
            if only_quick && !(family.quick && number == 0) {
                continue;
            }
            // A generator for each variant, so that a variant does not depend on the others.
            let mut dice = Dice::new(seed ^ (salt << 40) ^ (number << 32));
            let programs = (family.generate)(&mut dice, Share { gpu_kib: gpu_mem_mib * 1024, amount });
            let name = format!("{}_{gpu_mem_mib}m_{amount}", family.name);
            let text = scenario(&name, gpu_mem_mib, &programs);
            variants.push(Variant { name, gpu_mem_mib, throttling: family.throttling, text });
        }
    }
    variants
}

fn scenario(name: &str, gpu_mem_mib: u64, programs: &[Program]) -> String {
    let mut text = format!("name = \"{name}\"\ngpu_mem_mib = {gpu_mem_mib}\n");
    for Program { name, allocations, steps } in programs {
        let allocations: Vec<String> =
            allocations.iter().map(|(name, kib)| format!("{{ name = \"{name}\", kib = {kib} }}")).collect();
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "\n[[process]]\nname = \"{name}\"\nalloc = [{}]\nsteps = [\n    {},\n]\n",
            allocations.join(", "),
            steps.join(",\n    ")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::scenario::parse::parse;

    #[test]
    fn at_least_forty_variants_are_valid_for_every_seed() {
        for seed in 0..20 {
            let variants = all(seed, false);
            assert!(variants.len() >= 40);
            for variant in &variants {
                let parsed = parse(&variant.name, &variant.text);
                let scenario = parsed.unwrap_or_else(|error| panic!("{error}\n{}", variant.text));
                assert_eq!(scenario.gpu_mem_mib, variant.gpu_mem_mib);
                assert!(scenario.managed_bytes() <= (4 * variant.gpu_mem_mib) << 20, "{}", variant.text);
            }
            let names: BTreeSet<&str> = variants.iter().map(|variant| variant.name.as_str()).collect();
            assert_eq!(names.len(), variants.len());
        }
    }

    #[test]
    fn variants_depend_on_their_seed_only() {
        assert_eq!(all(3, false), all(3, false));
        assert_ne!(all(3, false), all(4, false));
        let quick = all(3, true);
        assert!(quick.len() < 10 && quick.iter().all(|variant| all(3, false).contains(variant)));
    }
}
