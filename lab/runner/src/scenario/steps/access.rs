//! `cpu_read`, `cpu_write`, `cpu_atomic`, `gpu_read`, `gpu_write`, `gpu_atomic`: one pass over a
//! part of an allocation, a word at a time.

use super::{Execution, Flow, Plan, Step, Use};
use crate::{
    dice::Dice,
    scenario::{
        Order, Part, Scope, WORD_BYTES,
        size::Bytes,
        table::{Fault, Table},
    },
};
pub(crate) use gpu::Kind;

/// Pass over the words at `offset`, `offset + stride`, ... below `offset + length`, each once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) by: Processor,
    pub(crate) kind: Kind,
    pub(crate) part: Part,
    pub(crate) stride_bytes: u64,
    pub(crate) order: Order,
}

/// Processor that accesses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Processor {
    Cpu,
    Gpu {
        gpu: u32,
        /// Maximum of accesses that wait for a fault at a time.
        window: u32,
        /// Link traffic of each access to a page elsewhere, in thousandths of a byte.
        access_millibytes: u64,
    },
}

macro_rules! kinds {
    ($($name:ident, $key:literal, $parse:ident, $kind:ident, $weight:literal;)*) => {$(
        pub(super) const $name: super::Kind = super::Kind {
            key: $key,
            parse: |table, scope| $parse(table, scope, $key, Kind::$kind),
            weight: $weight,
            generate: |dice, plan| Some(generate(dice, plan, $key)),
        };
    )*};
}
kinds! {
    CPU_READ, "cpu_read", cpu, Read, 8;
    CPU_WRITE, "cpu_write", cpu, Write, 10;
    CPU_ATOMIC, "cpu_atomic", cpu, Atomic, 4;
    GPU_READ, "gpu_read", gpu, Read, 20;
    GPU_WRITE, "gpu_write", gpu, Write, 20;
    GPU_ATOMIC, "gpu_atomic", gpu, Atomic, 10;
}

/// Default of `window`: the driver fetches up to 256 faults per batch.
const DEFAULT_WINDOW: u32 = 256;
const MAX_WINDOW: u32 = 4096;
/// Default of `stride`: four words per page, so that several faults of a pass occur on one page, as
/// with the threads of a warp.
const DEFAULT_STRIDE_BYTES: u64 = 1024;
const PAGE_BYTES: u64 = 4096;
/// Link traffic of one access of a warp that is not coalesced with others.
const SECTOR_MILLIBYTES: u64 = 32_000;
const MAX_ACCESS_RATE: f64 = 100_000.0;

// === parsing ===

fn cpu(table: &mut Table<'_>, scope: &Scope<'_>, key: &str, kind: Kind) -> Result<Box<dyn Step>, Fault> {
    Ok(Box::new(words(table, scope, key, kind, Processor::Cpu)?))
}

fn gpu(table: &mut Table<'_>, scope: &Scope<'_>, key: &str, kind: Kind) -> Result<Box<dyn Step>, Fault> {
    let gpu = scope.gpu(table.take("gpu")?)?;
    let window = table.take("window")?.unwrap_or(DEFAULT_WINDOW);
    if !(1..=MAX_WINDOW).contains(&window) {
        return Err(format!("window must be from 1 to {MAX_WINDOW}").into());
    }
    let rate: Option<f64> = table.take("access_rate")?;
    if rate.is_some_and(|rate| !(rate > 0.0 && rate <= MAX_ACCESS_RATE)) {
        return Err(format!("access_rate must be above 0, and at most {MAX_ACCESS_RATE}").into());
    }
    let access = words(table, scope, key, kind, Processor::Cpu)?;
    // The step's accesses represent `rate` accesses to each page of the part.
    let each = |rate| rate * access.part.pages_covered(access.stride_bytes) as f64 / access.count() as f64;
    let access_millibytes = millibytes(rate.map_or(1.0, each) * scope.variation.access_rate_factor);
    Ok(Box::new(Access { by: Processor::Gpu { gpu, window, access_millibytes }, ..access }))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the rate is bounded and positive")]
fn millibytes(accesses: f64) -> u64 {
    (accesses * SECTOR_MILLIBYTES as f64).round() as u64
}

fn words(table: &mut Table<'_>, scope: &Scope<'_>, key: &str, kind: Kind, by: Processor) -> Result<Access, Fault> {
    let part = Part::take(table, key, scope, WORD_BYTES)?;
    let stride_bytes = table.take::<Bytes>("stride")?.map_or(DEFAULT_STRIDE_BYTES, |stride| stride.0);
    if stride_bytes == 0 {
        return Err("stride = 0: would access one word for ever".into());
    }
    if stride_bytes % WORD_BYTES != 0 {
        return Err(format!("stride = {stride_bytes}: must be a multiple of {WORD_BYTES}").into());
    }
    let order = Order::take(table, &scope.variation)?;
    Ok(Access { by, kind, part, stride_bytes, order })
}

// === random generation ===

/// Maximum of accesses of a random step, so that the step is short.
const RANDOM_ACCESSES: u64 = 4096;

fn generate(dice: &mut Dice, plan: &Plan<'_>, key: &str) -> String {
    let (name, bytes) = plan.allocation(dice);
    let mut options = vec![format!("{key} = \"{name}\"")];
    let mut rest_bytes = bytes;
    if dice.chance(40) {
        let offset_bytes = dice.between(0, bytes / WORD_BYTES - 1) * WORD_BYTES;
        rest_bytes -= offset_bytes;
        options.push(format!("offset = {offset_bytes}"));
    }
    let mut length_bytes = rest_bytes;
    if dice.chance(40) {
        length_bytes = dice.between(1, rest_bytes / WORD_BYTES) * WORD_BYTES;
        options.push(format!("length = {length_bytes}"));
    }
    let stride_bytes = dice.pick([8, 512, 1024, 1024, 4096, 4096, 4104, 16384, 65536, 65544, 2 << 20]);
    let min_stride_bytes = length_bytes.div_ceil(RANDOM_ACCESSES).next_multiple_of(WORD_BYTES);
    options.push(format!("stride = {}", stride_bytes.max(min_stride_bytes)));
    if dice.chance(40) {
        options.push(format!("order = \"random\", seed = {}", dice.between(0, 99)));
    }
    if key.starts_with("gpu") {
        options.push(format!("gpu = {}", plan.gpu(dice)));
        if dice.chance(40) {
            options.push(format!("window = {}", dice.pick([1, 7, 64, 300, 4096])));
        }
        if dice.chance(30) {
            options.push(format!("access_rate = {}", dice.pick([0.25, 2.0, 128.0, 1000.0])));
        }
    }
    format!("{{ {} }}", options.join(", "))
}

// === execution ===

impl Access {
    /// Number of visited words; at least one.
    pub(crate) const fn count(&self) -> u64 {
        self.part.length_bytes.div_ceil(self.stride_bytes)
    }

    /// Visited words in their order, as indices into the allocation.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> + use<> {
        let (offset_bytes, stride_bytes) = (self.part.offset_bytes, self.stride_bytes);
        self.order.indices(self.count()).map(move |at| (offset_bytes + at * stride_bytes) / WORD_BYTES)
    }
}

impl Step for Access {
    fn run(&self, on: &dyn Execution) -> anyhow::Result<Flow> {
        on.access(self)
    }

    fn uses(&self) -> Vec<Use> {
        vec![Use { part: self.part, kind: self.kind }]
    }
}

impl Part {
    /// Number of pages that a pass with this stride accesses.
    fn pages_covered(&self, stride_bytes: u64) -> u64 {
        if stride_bytes >= PAGE_BYTES {
            return self.length_bytes.div_ceil(stride_bytes);
        }
        let last = self.offset_bytes + (self.length_bytes - 1) / stride_bytes * stride_bytes;
        last / PAGE_BYTES - self.offset_bytes / PAGE_BYTES + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(offset_bytes: u64, length_bytes: u64, stride_bytes: u64, order: Order) -> Access {
        let part = Part { allocation: 0, offset_bytes, length_bytes };
        Access { by: Processor::Cpu, kind: Kind::Read, part, stride_bytes, order }
    }

    #[test]
    fn an_access_visits_each_word_of_its_part_once() {
        let words = |access: Access| access.words().collect::<Vec<_>>();
        assert_eq!(words(access(64, 40, 16, Order::Sequential)), [8, 10, 12]);
        let mut random = words(access(64, 40, 16, Order::Random { seed: 3 }));
        random.sort_unstable();
        assert_eq!(random, [8, 10, 12]);
        let wide = access(64, 40, 4096, Order::Random { seed: 3 });
        assert_eq!(words(wide), [8], "a stride beyond the part leaves its first word");
    }

    #[test]
    fn the_pages_of_a_pass_are_counted_for_every_stride() {
        for (offset, length, stride, pages) in [
            (0, 8192, 1024, 2),
            (0, 8, 1024, 1),
            (4088, 16, 8, 2),
            (3072, 2048, 1024, 2),
            (3072, 1024, 1024, 1),
            (0, 65536, 8192, 8),
            (8, 65536, 4096, 16),
        ] {
            let pass = access(offset, length, stride, Order::Sequential);
            let mut touched: Vec<u64> = pass.words().map(|word| word * WORD_BYTES / PAGE_BYTES).collect();
            touched.dedup();
            assert_eq!(touched.len() as u64, pages, "{pass:?}");
            assert_eq!(pass.part.pages_covered(stride), pages, "{pass:?}");
        }
    }
}
