//! Programs of a variant's processes, as steps of the scenario language.

use crate::dice::Dice;

/// Program of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Program {
    pub(super) name: &'static str,
    /// Names and sizes in KiB.
    pub(super) allocations: Vec<(&'static str, u64)>,
    pub(super) steps: Vec<String>,
}

/// Amount of memory, relative to a GPU's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) gpu_kib: u64,
    /// Percent of the GPU's memory; MiB or KiB for programs that document it.
    pub(super) amount: u64,
}

/// Duration of the judged pattern: five windows and more.
const STEADY_MS: u64 = 12_000;
/// Number of pieces of a single pass, so that it takes as long as [`STEADY_MS`].
const PIECES: u64 = 60;
/// Duration of each phase in a sequence, long enough for a verdict to start and end.
const PHASE_MS: u64 = 9_000;

impl Share {
    /// Size in KiB, varied by up to a twentieth, in whole granules of 64 KiB.
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

/// Writes on the host, so that the GPU has something to fetch.
fn load(allocation: &str) -> String {
    access("cpu_write", allocation, EACH_PAGE)
}

fn random_order(dice: &mut Dice) -> String {
    format!(", stride = \"4 KiB\", order = \"random\", seed = {}", dice.between(1, 999))
}

fn gpu_key(dice: &mut Dice) -> &'static str {
    dice.pick(["gpu_read", "gpu_write"])
}

/// Accesses to a whole allocation, a piece at a time, with pauses.
fn in_pieces(key: &str, allocation: &str, kib: u64) -> Vec<String> {
    let piece = (kib / PIECES / 64 * 64).max(64);
    let pieces = (0..kib / piece).map(|at| {
        access(key, allocation, &format!(", offset = \"{} KiB\", length = \"{piece} KiB\"{EACH_PAGE}", at * piece))
    });
    let pause = format!("{{ sleep_ms = {} }}", STEADY_MS / PIECES);
    pieces.flat_map(|step| [step, pause.clone()]).collect()
}

/// Repeated passes in sequential order.
pub(super) fn cyclic(dice: &mut Dice, share: Share) -> Vec<Program> {
    let pass = access(gpu_key(dice), "a", EACH_PAGE);
    one(vec![("a", share.kib(dice))], vec![load("a"), steady(&[pass])])
}

/// Repeated passes in random order. Each access to absent memory migrates a whole VA block, so that
/// few accesses are much work.
pub(super) fn random(dice: &mut Dice, share: Share) -> Vec<Program> {
    let order = |dice: &mut Dice| random_order(dice).replace("4 KiB", "64 KiB");
    let passes: Vec<String> = (0..2).map(|_| access(gpu_key(dice), "a", &order(dice))).collect();
    one(vec![("a", share.kib(dice))], vec![load("a"), steady(&passes)])
}

/// Repeated passes with a large stride.
pub(super) fn strided(dice: &mut Dice, share: Share) -> Vec<Program> {
    let stride = dice.pick([16, 64, 128]);
    let pass = access(gpu_key(dice), "a", &format!(", stride = \"{stride} KiB\""));
    one(vec![("a", share.kib(dice))], vec![load("a"), steady(&[pass])])
}

/// Repeated accesses to a small allocation, each followed by the next quarter of a large one.
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

/// Repeated passes in sequential order over memory that fits the GPU.
pub(super) fn fits(dice: &mut Dice, share: Share) -> Vec<Program> {
    cyclic(dice, share)
}

/// Repeated passes in random order over memory that fits the GPU.
pub(super) fn fits_random(dice: &mut Dice, share: Share) -> Vec<Program> {
    random(dice, share)
}

/// A single fetch of all memory, in sequential order.
pub(super) fn once(dice: &mut Dice, share: Share) -> Vec<Program> {
    let kib = share.kib(dice);
    let steps = [load("a")].into_iter().chain(in_pieces("gpu_read", "a", kib)).collect();
    one(vec![("a", kib)], steps)
}

/// A single sequential write pass of the GPU over untouched memory.
pub(super) fn once_touched(dice: &mut Dice, share: Share) -> Vec<Program> {
    let kib = share.kib(dice);
    one(vec![("a", kib)], in_pieces("gpu_write", "a", kib))
}

/// A single sequential write pass over untouched memory that fits the GPU.
pub(super) fn first_touch(dice: &mut Dice, share: Share) -> Vec<Program> {
    once_touched(dice, share)
}

/// Writes by the CPU and the GPU in turn; the amount is in MiB.
pub(super) fn ping_pong(_dice: &mut Dice, share: Share) -> Vec<Program> {
    let turns = [access("cpu_write", "a", EACH_PAGE), access("gpu_write", "a", EACH_PAGE)];
    one(vec![("a", share.amount * 1024)], vec![steady(&turns)])
}

/// Writes in turn with pauses longer than the period in which the driver detects slow thrashing;
/// the amount is in MiB.
pub(super) fn ping_pong_slow(_dice: &mut Dice, share: Share) -> Vec<Program> {
    let pause = || "{ sleep_ms = 250 }".to_owned();
    let turns = [access("cpu_write", "a", EACH_PAGE), pause(), access("gpu_write", "a", EACH_PAGE), pause()];
    one(vec![("a", share.amount * 1024)], vec![steady(&turns)])
}

/// Writes in turn, in random order; the amount is in MiB.
pub(super) fn ping_pong_random(dice: &mut Dice, share: Share) -> Vec<Program> {
    let turns = [access("cpu_write", "a", &random_order(dice)), access("gpu_write", "a", &random_order(dice))];
    one(vec![("a", share.amount * 1024)], vec![steady(&turns)])
}

/// Reads by the CPU of half the memory that the GPU writes; the amount is in MiB.
pub(super) fn ping_pong_read(_dice: &mut Dice, share: Share) -> Vec<Program> {
    let half = format!(", length = \"{} MiB\"{EACH_PAGE}", share.amount / 2);
    let turns = [access("cpu_read", "a", &half), access("gpu_write", "a", EACH_PAGE)];
    one(vec![("a", share.amount * 1024)], vec![steady(&turns)])
}

/// Two buffers, of which CPU and GPU each use one at a time and then swap; the amount is MiB of
/// each.
pub(super) fn two_buffers(_dice: &mut Dice, share: Share) -> Vec<Program> {
    let turn = |cpu: &str, gpu: &str| {
        let (cpu, gpu) = (access("cpu_write", cpu, EACH_PAGE), access("gpu_read", gpu, EACH_PAGE));
        format!("{{ parallel = [[{cpu}], [{gpu}]] }}")
    };
    let turns = [turn("even", "odd"), turn("odd", "even")];
    one(vec![("even", share.amount * 1024), ("odd", share.amount * 1024)], vec![steady(&turns)])
}

/// Writes by the CPU and the GPU in turn, over more memory than the GPU has.
pub(super) fn ping_pong_over(dice: &mut Dice, share: Share) -> Vec<Program> {
    let turns = [access("cpu_write", "a", EACH_PAGE), access("gpu_write", "a", EACH_PAGE)];
    one(vec![("a", share.kib(dice))], vec![steady(&turns)])
}

/// A single fetch of memory that fits the GPU, a piece at a time.
pub(super) fn loaded(dice: &mut Dice, share: Share) -> Vec<Program> {
    once(dice, share)
}

/// Two processes that fit the GPU together.
pub(super) fn tenants_fit(dice: &mut Dice, share: Share) -> Vec<Program> {
    let half = share.percent(share.amount / 2);
    ["first", "second"].map(|name| tenant(dice, half, name)).into()
}

fn tenant(dice: &mut Dice, share: Share, name: &'static str) -> Program {
    let order = if dice.chance(50) { EACH_PAGE.to_owned() } else { random_order(dice) };
    let pass = access(gpu_key(dice), "a", &order);
    program(name, vec![("a", share.kib(dice))], vec![load("a"), steady(&[pass])])
}

/// Two processes that fit the GPU alone, but not together.
pub(super) fn tenants(dice: &mut Dice, share: Share) -> Vec<Program> {
    tenants_fit(dice, share)
}

/// Three processes that fit the GPU alone, but not together.
pub(super) fn three_tenants(dice: &mut Dice, share: Share) -> Vec<Program> {
    let third = share.percent(share.amount / 3);
    ["first", "second", "third"].map(|name| tenant(dice, third, name)).into()
}

/// A process that would fit the GPU, beside one that walks over more memory than the GPU has.
pub(super) fn victim(dice: &mut Dice, share: Share) -> Vec<Program> {
    let mut streams = cyclic(dice, share);
    for program in &mut streams {
        program.name = "streams";
    }
    let victim = tenant(dice, share.percent(40), "victim");
    [vec![victim], streams].concat()
}

/// Repeated allocations of device memory, which evict a process that would fit the GPU.
pub(super) fn pressure(dice: &mut Dice, share: Share) -> Vec<Program> {
    let mib = share.gpu_kib * dice.between(55, 65) / 100 / 1024;
    let allocating = program(
        "allocates",
        vec![("small", 64)],
        vec![steady(&[
            format!("{{ device_alloc = \"weights\", mib = {mib} }}"),
            "{ sleep_ms = 150 }".to_owned(),
            "{ device_free = \"weights\" }".to_owned(),
            "{ sleep_ms = 50 }".to_owned(),
        ])],
    );
    vec![tenant(dice, share, "managed"), allocating]
}

/// A phase over memory that fits the GPU, a phase over more memory, and an idle phase.
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

/// A phase over more memory than the GPU has, a phase over memory that fits, and an idle phase.
pub(super) fn cyclic_then_fits(dice: &mut Dice, share: Share) -> Vec<Program> {
    let mut programs = fits_then_cyclic(dice, share);
    for program in &mut programs {
        program.steps.swap(1, 2);
    }
    programs
}

/// Writes by the CPU and the GPU in turn, then writes by the GPU alone; the amount is in MiB.
pub(super) fn ping_pong_then_fits(dice: &mut Dice, share: Share) -> Vec<Program> {
    let mut programs = ping_pong(dice, share);
    let alone = for_ms(PHASE_MS, &[access("gpu_write", "a", EACH_PAGE)]);
    for program in &mut programs {
        program.steps.push(alone.clone());
    }
    programs
}

/// Atomics of the CPU and the GPU on the same pages at the same time; the amount is in KiB.
pub(super) fn contended(_dice: &mut Dice, share: Share) -> Vec<Program> {
    let side = |key: &str, pause: &str| format!("[{}]", steady(&[access(key, "a", EACH_PAGE) + pause]));
    let both = [side("cpu_atomic", ", { sleep_ms = 1 }"), side("gpu_atomic", "")];
    one(vec![("a", share.amount)], vec![format!("{{ parallel = [{}] }}", both.join(", "))])
}

/// Atomics of the CPU and the GPU on the same pages in turn, without a pause; the amount is in KiB.
pub(super) fn contended_in_turns(_dice: &mut Dice, share: Share) -> Vec<Program> {
    let turns = [access("cpu_atomic", "a", EACH_PAGE), access("gpu_atomic", "a", EACH_PAGE)];
    one(vec![("a", share.amount)], vec![steady(&turns)])
}
