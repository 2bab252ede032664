//! `lab-runner mirror`: checks of the software GPU's mirror, whose loads and stores are genuine
//! accesses of the GPU.
//!
//! [`checks`] are those of one process, [`kills`] has several at a time, of which some are killed.

mod checks;
mod kills;

use std::sync::atomic::Ordering;

use anyhow::{Context, ensure};
use gpu::{
    mirror::{PERMISSION_BYTES, Permissions},
    swgpu::{Gpu, HardwareCounters, Space},
    uvm::VaSpace,
    words::Words,
};

use crate::{mix::mix, sys::process};

/// Address of the managed memory.
const BASE: u64 = 0x2000_0000_0000;
/// GPU addresses that are mirrored, from [`BASE`] on.
const WINDOW_BYTES: u64 = 1 << 40;
/// Distance of the mirrors, one per GPU, from the window and from each other.
const MIRROR_OFFSET: u64 = 0x1000_0000_0000;
const WORD_BYTES: u64 = 8;
const PAGE_WORDS: usize = 512;
/// Distance of the words that checks write and read: 512 bytes.
const STEP_WORDS: usize = 64;

/// Options of `mirror`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Managed memory of a process, in MiB.
    #[arg(long, value_name = "N", default_value_t = 96)]
    mib: u64,
    /// Run three processes that write and verify, and kill one of them (-9) so many times.
    #[arg(long, value_name = "N")]
    kills: Option<u32>,
    /// Seed of the kills.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Be one of the processes that are killed: write and verify until standard input ends.
    #[arg(long, hide = true)]
    victim: bool,
}

/// Runs the checks, and prints a line for each.
pub(crate) fn mirror(options: &Options) -> anyhow::Result<()> {
    let bytes = options.mib << 20;
    match options.kills {
        _ if options.victim => {
            process::die_with_parent()?;
            kills::victim(bytes, options.seed)
        }
        Some(count) => kills::kills(options.mib, count, options.seed),
        None => checks::checks(bytes),
    }
}

/// Window of a GPU.
struct Mirrored {
    words: Words,
    permissions: Permissions,
}

impl Mirrored {
    /// Permission of the page of a word.
    fn permission(&self, word: usize) -> u8 {
        let page = word as u64 * WORD_BYTES / PERMISSION_BYTES;
        let permission = usize::try_from(page).ok().and_then(|page| self.permissions.pages().get(page));
        permission.map_or(0, |permission| permission.load(Ordering::Relaxed))
    }
}

/// Process with managed memory and a mirror per GPU.
struct Process {
    va_space: VaSpace,
    gpus: Vec<(Gpu, Space, Mirrored)>,
    managed: Words,
    words: usize,
}

impl Process {
    fn start(bytes: u64) -> anyhow::Result<Self> {
        let count = Gpu::open(0)?.count;
        let gpus: Vec<Gpu> = (0..count).map(Gpu::open).collect::<Result<_, _>>()?;
        let mut va_space = VaSpace::new(gpus.iter().map(|gpu| &gpu.uuid))?;
        va_space.attach_address_space()?;
        let managed = Words::managed(&va_space, BASE, bytes)?;
        let mut attached = Vec::new();
        for (gpu, number) in gpus.into_iter().zip(0..) {
            let space = gpu.space()?;
            va_space.attach(&gpu.uuid, &space)?;
            let address = BASE + (number + 1) * MIRROR_OFFSET;
            let words = space.mirror(BASE, WINDOW_BYTES, address)?;
            let permissions = Permissions::map(&space, BASE, WINDOW_BYTES)?;
            attached.push((gpu, space, Mirrored { words, permissions }));
        }
        Ok(Self { va_space, gpus: attached, managed, words: usize::try_from(bytes / WORD_BYTES)? })
    }

    fn gpu(&self, number: usize) -> anyhow::Result<&(Gpu, Space, Mirrored)> {
        self.gpus.get(number).with_context(|| format!("no GPU {number}"))
    }

    fn counters(&self) -> anyhow::Result<HardwareCounters> {
        Ok(self.gpu(0)?.0.counters()?)
    }
}

/// Value of a word in a round.
const fn pattern(word: usize, round: u64) -> u64 {
    mix(word as u64 ^ mix(round))
}

/// Writes every [`STEP_WORDS`]th word.
fn fill(words: &Words, count: usize, round: u64) {
    for word in (0..count).step_by(STEP_WORDS) {
        words.write(word, pattern(word, round));
    }
}

/// Reads these words.
///
/// # Errors
/// Any differs.
fn verify(words: &Words, count: usize, round: u64) -> anyhow::Result<()> {
    let differing = (0..count).step_by(STEP_WORDS).filter(|word| words.read(*word) != pattern(*word, round)).count();
    ensure!(differing == 0, "{differing} words differ");
    Ok(())
}
