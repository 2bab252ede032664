//! What the processes of a variant do, as steps of the scenario language.

use crate::dice::Dice;

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) name: &'static str,
    /// Names, and sizes in KiB.
    pub(super) allocations: Vec<(&'static str, u64)>,
    pub(super) steps: Vec<String>,
}

/// How much of a GPU's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) gpu_kib: u64,
    /// Percent of it; MiB or KiB in families that say so.
    pub(super) amount: u64,
}

/// How long what matters goes on: five windows and more.
const STEADY_MS: u64 = 12_000;
/// Pieces of what is done once, so that it takes as long.
const PIECES: u64 = 60;
/// Between what follows each other, long enough for a verdict to come and go.
const PHASE_MS: u64 = 9_000;

impl Share {
    /// Give or take a twentieth, in whole page groups of 64 KiB.
    fn kib(self, dice: &mut Dice) -> u64 {
        let kib = self.gpu_kib * self.amount / 100 * dice.between(95, 105) / 100;
        kib.min(self.gpu_kib * 4) / 64 * 64
    }

    const fn percent(self, percent: u64) -> Self {
        Self { amount: percent, ..self }
    }
}

fn program(name: &'static str, allocations: Vec<(&'static str, u64)>, steps: Vec<String>) -> Program {
    Program { name, allocations, steps }
}

fn one(allocations: Vec<(&'static str, u64)>, steps: Vec<String>) -> Vec<Program> {
    vec![program("one", allocations, steps)]
}

fn for_ms(milliseconds: u64, steps: &[String]) -> String {
    format!("{{ repeat_for_ms = {milliseconds}, steps = [{}] }}", steps.join(", "))
}

fn steady(steps: &[String]) -> String {
    for_ms(STEADY_MS, steps)
}

fn access(key: &str, allocation: &str, options: &str) -> String {
    format!("{{ {key} = \"{allocation}\"{options} }}")
}

const EACH_PAGE: &str = ", stride = \"4 KiB\"";

/// On the host first, so that the GPU has something to fetch.
fn load(allocation: &str) -> String {
    access("cpu_write", allocation, EACH_PAGE)
}

fn random_order(dice: &mut Dice) -> String {
    format!(", stride = \"4 KiB\", order = \"random\", seed = {}", dice.between(1, 999))
}

fn gpu_key(dice: &mut Dice) -> &'static str {
    dice.pick(["gpu_read", "gpu_write"])
}

/// An access to all of it, a piece at a time, with pauses.
fn in_pieces(key: &str, allocation: &str, kib: u64) -> Vec<String> {
    let piece = (kib / PIECES / 64 * 64).max(64);
    let pieces = (0..kib / piece).map(|at| {
        access(key, allocation, &format!(", offset = \"{} KiB\", length = \"{piece} KiB\"{EACH_PAGE}", at * piece))
    });
    let pause = format!("{{ sleep_ms = {} }}", STEADY_MS / PIECES);
    pieces.flat_map(|step| [step, pause.clone()]).collect()
}

/// In order, again and again.
pub(super) fn cyclic(dice: &mut Dice, share: Share) -> Vec<Program> {
    let again = access(gpu_key(dice), "a", EACH_PAGE);
    one(vec![("a", share.kib(dice))], vec![load("a"), steady(&[again])])
}

/// In no order. Each access to what is not there brings the driver's whole block: few are much work.
pub(super) fn random(dice: &mut Dice, share: Share) -> Vec<Program> {
    let order = |dice: &mut Dice| random_order(dice).replace("4 KiB", "64 KiB");
    let passes: Vec<String> = (0..2).map(|_| access(gpu_key(dice), "a", &order(dice))).collect();
    one(vec![("a", share.kib(dice))], vec![load("a"), steady(&passes)])
}

/// With gaps.
pub(super) fn strided(dice: &mut Dice, share: Share) -> Vec<Program> {
    let stride = dice.pick([16, 64, 128]);
    let again = access(gpu_key(dice), "a", &format!(", stride = \"{stride} KiB\""));
    one(vec![("a", share.kib(dice))], vec![load("a"), steady(&[again])])
}

/// A small part at every step beside a large one in turn.
pub(super) fn hot_cold(dice: &mut Dice, share: Share) -> Vec<Program> {
    let hot = share.percent(dice.between(10, 25)).kib(dice);
    let cold = share.kib(dice) - hot;
    let quarter = cold / 4 / 64 * 64;
    let mut steps = Vec::new();
    for at in 0..4 {
        steps.push(access("gpu_write", "hot", &random_order(dice)));
        let part = format!(", offset = \"{} KiB\", length = \"{quarter} KiB\"{EACH_PAGE}", at * quarter);
        steps.push(access("gpu_read", "cold", &part));
    }
    one(vec![("hot", hot), ("cold", cold)], vec![load("hot"), load("cold"), steady(&steps)])
}

/// In order, over what has room.
pub(super) fn fits(dice: &mut Dice, share: Share) -> Vec<Program> {
    cyclic(dice, share)
}

/// In no order, over what has room.
pub(super) fn fits_random(dice: &mut Dice, share: Share) -> Vec<Program> {
    random(dice, share)
}

/// Fetched once, in order.
pub(super) fn once(dice: &mut Dice, share: Share) -> Vec<Program> {
    let kib = share.kib(dice);
    let steps = [load("a")].into_iter().chain(in_pieces("gpu_read", "a", kib)).collect();
    one(vec![("a", kib)], steps)
}

/// Written by the GPU once, in order, and by nobody before.
pub(super) fn once_touched(dice: &mut Dice, share: Share) -> Vec<Program> {
    let kib = share.kib(dice);
    one(vec![("a", kib)], in_pieces("gpu_write", "a", kib))
}

/// The same, where there is room.
pub(super) fn first_touch(dice: &mut Dice, share: Share) -> Vec<Program> {
    once_touched(dice, share)
}

/// Written by the CPU and by the GPU in turn; the amount is MiB.
pub(super) fn ping_pong(_dice: &mut Dice, share: Share) -> Vec<Program> {
    let turns = [access("cpu_write", "a", EACH_PAGE), access("gpu_write", "a", EACH_PAGE)];
    one(vec![("a", share.amount * 1024)], vec![steady(&turns)])
}

/// The same with pauses, longer than the driver looks back where it finds slow thrashing.
pub(super) fn ping_pong_slow(_dice: &mut Dice, share: Share) -> Vec<Program> {
    let pause = || "{ sleep_ms = 250 }".to_owned();
    let turns = [access("cpu_write", "a", EACH_PAGE), pause(), access("gpu_write", "a", EACH_PAGE), pause()];
    one(vec![("a", share.amount * 1024)], vec![steady(&turns)])
}

/// The same in no order.
pub(super) fn ping_pong_random(dice: &mut Dice, share: Share) -> Vec<Program> {
    let turns = [access("cpu_write", "a", &random_order(dice)), access("gpu_write", "a", &random_order(dice))];
    one(vec![("a", share.amount * 1024)], vec![steady(&turns)])
}

/// The CPU only looks at a part of what the GPU writes.
pub(super) fn ping_pong_read(_dice: &mut Dice, share: Share) -> Vec<Program> {
    let half = format!(", length = \"{} MiB\"{EACH_PAGE}", share.amount / 2);
    let turns = [access("cpu_read", "a", &half), access("gpu_write", "a", EACH_PAGE)];
    one(vec![("a", share.amount * 1024)], vec![steady(&turns)])
}

/// Each side has one while the other has the other; the amount is MiB of each.
pub(super) fn two_buffers(_dice: &mut Dice, share: Share) -> Vec<Program> {
    let turn = |cpu: &str, gpu: &str| {
        let (cpu, gpu) = (access("cpu_write", cpu, EACH_PAGE), access("gpu_read", gpu, EACH_PAGE));
        format!("{{ parallel = [[{cpu}], [{gpu}]] }}")
    };
    let turns = [turn("even", "odd"), turn("odd", "even")];
    one(vec![("even", share.amount * 1024), ("odd", share.amount * 1024)], vec![steady(&turns)])
}

/// In turn, over more than there is room for.
pub(super) fn ping_pong_over(dice: &mut Dice, share: Share) -> Vec<Program> {
    let turns = [access("cpu_write", "a", EACH_PAGE), access("gpu_write", "a", EACH_PAGE)];
    one(vec![("a", share.kib(dice))], vec![steady(&turns)])
}

/// From the CPU to the GPU once, a piece at a time, where there is room.
pub(super) fn loaded(dice: &mut Dice, share: Share) -> Vec<Program> {
    once(dice, share)
}

/// Two that fit together.
pub(super) fn tenants_fit(dice: &mut Dice, share: Share) -> Vec<Program> {
    let half = share.percent(share.amount / 2);
    ["first", "second"].map(|name| tenant(dice, half, name)).into()
}

fn tenant(dice: &mut Dice, share: Share, name: &'static str) -> Program {
    let order = if dice.chance(50) { EACH_PAGE.to_owned() } else { random_order(dice) };
    let again = access(gpu_key(dice), "a", &order);
    program(name, vec![("a", share.kib(dice))], vec![load("a"), steady(&[again])])
}

/// Two that fit alone, and not together.
pub(super) fn tenants(dice: &mut Dice, share: Share) -> Vec<Program> {
    tenants_fit(dice, share)
}

/// Three of them.
pub(super) fn three_tenants(dice: &mut Dice, share: Share) -> Vec<Program> {
    let third = share.percent(share.amount / 3);
    ["first", "second", "third"].map(|name| tenant(dice, third, name)).into()
}

/// One that would fit, beside one that walks over more than there is room for.
pub(super) fn victim(dice: &mut Dice, share: Share) -> Vec<Program> {
    let mut streams = cyclic(dice, share);
    for program in &mut streams {
        program.name = "streams";
    }
    let victim = tenant(dice, share.percent(40), "victim");
    [vec![victim], streams].concat()
}

/// Device memory takes the room of what would fit, again and again.
pub(super) fn pressure(dice: &mut Dice, share: Share) -> Vec<Program> {
    let mib = share.gpu_kib * dice.between(55, 65) / 100 / 1024;
    let taker = program(
        "allocates",
        vec![("small", 64)],
        vec![steady(&[
            format!("{{ device_alloc = \"weights\", mib = {mib} }}"),
            "{ sleep_ms = 150 }".to_owned(),
            "{ device_free = \"weights\" }".to_owned(),
            "{ sleep_ms = 50 }".to_owned(),
        ])],
    );
    vec![tenant(dice, share, "managed"), taker]
}

/// First what has room, then more, then nothing.
pub(super) fn fits_then_cyclic(dice: &mut Dice, share: Share) -> Vec<Program> {
    let kib = share.kib(dice);
    let small = format!(", length = \"{} KiB\"{EACH_PAGE}", share.gpu_kib / 2);
    one(
        vec![("a", kib)],
        vec![
            load("a"),
            for_ms(PHASE_MS, &[access("gpu_read", "a", &small)]),
            for_ms(PHASE_MS, &[access("gpu_read", "a", EACH_PAGE)]),
            format!("{{ sleep_ms = {PHASE_MS} }}"),
        ],
    )
}

/// First too much, then what has room.
pub(super) fn cyclic_then_fits(dice: &mut Dice, share: Share) -> Vec<Program> {
    let mut programs = fits_then_cyclic(dice, share);
    for program in &mut programs {
        program.steps.swap(1, 2);
    }
    programs
}

/// Back and forth, then by the GPU alone.
pub(super) fn ping_pong_then_fits(dice: &mut Dice, share: Share) -> Vec<Program> {
    let mut programs = ping_pong(dice, share);
    let alone = for_ms(PHASE_MS, &[access("gpu_write", "a", EACH_PAGE)]);
    for program in &mut programs {
        program.steps.push(alone.clone());
    }
    programs
}

/// CPU and GPU at the same pages at the same time; the amount is KiB.
pub(super) fn contended(_dice: &mut Dice, share: Share) -> Vec<Program> {
    let side = |key: &str, pause: &str| format!("[{}]", steady(&[access(key, "a", EACH_PAGE) + pause]));
    let both = [side("cpu_atomic", ", { sleep_ms = 1 }"), side("gpu_atomic", "")];
    one(vec![("a", share.amount)], vec![format!("{{ parallel = [{}] }}", both.join(", "))])
}

/// The same pages, in turn and without pause.
pub(super) fn contended_in_turns(_dice: &mut Dice, share: Share) -> Vec<Program> {
    let turns = [access("cpu_atomic", "a", EACH_PAGE), access("gpu_atomic", "a", EACH_PAGE)];
    one(vec![("a", share.amount)], vec![steady(&turns)])
}
