//! Checks of one process with its GPUs.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use anyhow::{Context, ensure};
use gpu::{
    mirror::{MAY_ATOMIC, MAY_READ, MAY_WRITE, Place, Touch},
    swgpu::{AccessCounters, GpuAccess},
    words::Words,
};

use super::{BASE, PAGE_WORDS, Process, STEP_WORDS, WINDOW_BYTES, WORD_BYTES, fill, pattern, verify};
use crate::{dice::Dice, scenario::steps::access::Kind, sys::process};

const PAGE_BYTES: usize = 4096;
/// VA blocks of the driver.
const BLOCK_BYTES: u64 = 2 << 20;
/// Address of memory that another thread maps and unmaps.
const NOISE_AT: u64 = 0x7000_0000_0000;

type Check = fn(&Process) -> anyhow::Result<()>;

/// In this order: each begins with the data of the one before it.
const CHECKS: &[(&str, Check)] = &[
    ("the GPU reads what the CPU wrote", gpu_reads_what_the_cpu_wrote),
    ("the CPU reads what the GPU wrote", cpu_reads_what_the_gpu_wrote),
    ("loads beyond the card's memory evict by faults", loads_evict_by_faults),
    ("permissions follow the driver's migrations", permissions_follow_migrations),
    ("touched pages are accessed without a fault", touched_pages_need_no_fault),
    ("a write to a page that the GPU may only read faults", write_to_a_duplicate_faults),
    ("remote memory is touched, accessed and counted", remote_memory_is_counted),
    ("reads are right beside another thread's mmap and munmap", reads_beside_mmap_are_right),
    ("threads take turns on the channel", threads_take_turns),
    ("atomics of CPU and GPU add up", atomics_add_up),
    ("device memory of half the card evicts, and data stay right", device_memory_evicts),
    ("GPUs see each other's writes", gpus_see_each_other),
    ("a child has no mirror", a_child_has_no_mirror),
    ("an access without memory kills the channel, not the process", bad_access_kills_the_channel),
];

/// Runs all checks.
pub(super) fn checks(bytes: u64) -> anyhow::Result<()> {
    let process = Process::start(bytes)?;
    for (name, check) in CHECKS {
        let before = process.counters()?;
        check(&process).with_context(|| (*name).to_owned())?;
        let counters = process.counters()?.since(&before);
        println!(
            "{name}: faults {}, replays {}, to the GPU {} KiB, from it {} KiB",
            counters.fault_packets,
            counters.replays,
            counters.copied_htod_bytes >> 10,
            counters.copied_dtoh_bytes >> 10
        );
        ensure!(counters.errors == 0, "the model met {} errors", counters.errors);
        ensure!(counters.unknown_methods == 0, "the model met {} unknown methods", counters.unknown_methods);
    }
    println!("checks: {}", CHECKS.len());
    Ok(())
}

fn gpu_reads_what_the_cpu_wrote(process: &Process) -> anyhow::Result<()> {
    fill(&process.managed, process.words, 1);
    verify(&process.gpu(0)?.2.words, process.words, 1)
}

fn cpu_reads_what_the_gpu_wrote(process: &Process) -> anyhow::Result<()> {
    fill(&process.gpu(0)?.2.words, process.words, 2);
    verify(&process.managed, process.words, 2)
}

fn loads_evict_by_faults(process: &Process) -> anyhow::Result<()> {
    let (gpu, _, mirror) = process.gpu(0)?;
    let before = gpu.counters()?;
    let bytes = process.words as u64 * WORD_BYTES;
    verify(&mirror.words, process.words, 2)?;
    let moved = gpu.counters()?.since(&before);
    ensure!(moved.copied_htod_bytes == bytes, "{} bytes moved to the GPU of {bytes}", moved.copied_htod_bytes);
    ensure!(bytes <= gpu.memory_bytes || moved.copied_dtoh_bytes > 0, "nothing was evicted");
    Ok(())
}

fn permissions_follow_migrations(process: &Process) -> anyhow::Result<()> {
    let (gpu, _, mirror) = process.gpu(0)?;
    let pages = || (0..BLOCK_BYTES).step_by(PAGE_BYTES).map(|byte| mirror.permission((byte / WORD_BYTES) as usize));
    process.va_space.migrate(BASE, BLOCK_BYTES, None)?;
    ensure!(pages().all(|permission| permission == 0), "permissions of memory on the host");
    process.va_space.migrate(BASE, BLOCK_BYTES, Some(&gpu.uuid))?;
    for page in (0..BLOCK_BYTES).step_by(1 << 16) {
        mirror.words.write((page / WORD_BYTES) as usize, pattern((page / WORD_BYTES) as usize, 2));
    }
    let all = MAY_READ | MAY_WRITE | MAY_ATOMIC;
    ensure!(pages().all(|permission| permission == all), "no permissions of memory on the GPU");
    process.va_space.migrate(BASE, BLOCK_BYTES, None)?;
    ensure!(pages().all(|permission| permission == 0), "permissions of memory that has left the GPU");
    verify(&mirror.words, process.words, 2)
}

fn touched_pages_need_no_fault(process: &Process) -> anyhow::Result<()> {
    let (gpu, space, mirror) = process.gpu(0)?;
    process.va_space.migrate(BASE, 8 * BLOCK_BYTES, None)?;
    let pages = || (0..8 * BLOCK_BYTES).step_by(PAGE_BYTES);
    let kinds = [Kind::Read, Kind::Write, Kind::Atomic];
    let mut touches: Vec<Touch> =
        pages().zip(kinds.into_iter().cycle()).map(|(page, kind)| Touch::new(BASE + page, kind)).collect();
    space.touch(&mut touches, 256)?;
    ensure!(touches.iter().all(|touch| touch.place() == Place::Local), "a touched page is not on the GPU");
    let before = gpu.counters()?;
    for page in pages() {
        let word = (page / WORD_BYTES) as usize;
        ensure!(mirror.words.read(word) == pattern(word, 2), "word {word} differs");
    }
    let faults = gpu.counters()?.since(&before).fault_packets;
    ensure!(faults == 0, "{faults} faults on touched pages");
    Ok(())
}

fn write_to_a_duplicate_faults(process: &Process) -> anyhow::Result<()> {
    let (_, _, mirror) = process.gpu(0)?;
    process.va_space.enable_read_duplication(BASE, BLOCK_BYTES)?;
    let words = (BLOCK_BYTES / WORD_BYTES) as usize;
    verify(&process.managed, words, 2)?;
    verify(&mirror.words, words, 2)?;
    ensure!(mirror.permission(0) == MAY_READ, "permission {} of a duplicate", mirror.permission(0));
    let before = process.counters()?;
    fill(&mirror.words, words, 3);
    ensure!(process.counters()?.since(&before).fault_packets > 0, "no fault of a write to a duplicate");
    verify(&process.managed, words, 3)?;
    process.va_space.disable_read_duplication(BASE, BLOCK_BYTES)?;
    fill(&process.managed, words, 2);
    Ok(())
}

fn remote_memory_is_counted(process: &Process) -> anyhow::Result<()> {
    let (gpu, space, mirror) = process.gpu(0)?;
    process.va_space.set_preferred_location(BASE, BLOCK_BYTES, None)?;
    process.va_space.set_accessed_by(BASE, BLOCK_BYTES, Some(&gpu.uuid))?;
    process.va_space.migrate(BASE, BLOCK_BYTES, None)?;
    let mut touches: Vec<Touch> =
        (0..BLOCK_BYTES).step_by(PAGE_BYTES).map(|page| Touch::new(BASE + page, Kind::Write)).collect();
    space.touch(&mut touches, 256)?;
    ensure!(touches.iter().all(|touch| touch.place() == Place::Host), "a touched page has left the host");
    ensure!(mirror.permission(0) == 0, "permission of remote memory");
    let before = space.access_counters()?;
    let kernel = gpu::swgpu::Kernel { gpu: 0, kind: Kind::Read, window: 1, access_millibytes: 128_000 };
    let mut read = [GpuAccess { va: BASE, value: 0 }];
    space.run(&kernel, &mut read)?;
    ensure!(read.iter().all(|access| access.value == pattern(0, 2)), "remote memory differs");
    let counters = space.access_counters()?;
    ensure!(counters.remote_accesses == before.remote_accesses + 1, "the remote access was not counted");
    ensure!(counters.remote_htod_millibytes == before.remote_htod_millibytes + 128_000, "its bytes were not counted");
    verify(&mirror.words, (BLOCK_BYTES / WORD_BYTES) as usize, 2)?;
    let access =
        AccessCounters { accesses: 7, remote_accesses: 2, remote_htod_millibytes: 64_000, ..AccessCounters::default() };
    ensure!(space.accessed(access)?, "the channel is dead");
    let after = space.access_counters()?;
    ensure!(after.accesses == counters.accesses + 7, "accesses of the mirror were not counted");
    ensure!(after.remote_accesses == counters.remote_accesses + 2, "nor remote ones");
    ensure!(after.remote_htod_millibytes == counters.remote_htod_millibytes + 64_000, "nor their bytes");
    process.va_space.unset_accessed_by(BASE, BLOCK_BYTES, Some(&gpu.uuid))?;
    process.va_space.unset_preferred_location(BASE, BLOCK_BYTES)?;
    Ok(())
}

fn reads_beside_mmap_are_right(process: &Process) -> anyhow::Result<()> {
    let mirror = &process.gpu(0)?.2;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let noise = scope.spawn(|| {
            let mut rounds = 0_u64;
            while !done.load(Ordering::Relaxed) {
                let mapped = Words::managed(&process.va_space, NOISE_AT, BLOCK_BYTES)?;
                mapped.write(0, rounds);
                mapped.unmap()?;
                rounds += 1;
            }
            anyhow::Ok(rounds)
        });
        let mut dice = Dice::new(7);
        let steps = process.words / STEP_WORDS;
        let differing = (0..1000)
            .map(|_| dice.index(steps) * STEP_WORDS)
            .filter(|word| mirror.words.read(*word) != pattern(*word, 2))
            .count();
        done.store(true, Ordering::Relaxed);
        let rounds = noise.join().map_err(|_| anyhow::anyhow!("the other thread panicked"))??;
        ensure!(rounds > 0, "the other thread did nothing");
        ensure!(differing == 0, "{differing} words differ");
        Ok(())
    })
}

/// As a kernel, a copy of another stream, and accesses that miss the mirror.
fn threads_take_turns(process: &Process) -> anyhow::Result<()> {
    let (_, space, mirror) = process.gpu(0)?;
    let blocks = process.words as u64 * WORD_BYTES / BLOCK_BYTES;
    let touch_all = |first: u64| {
        (first..blocks).step_by(2).try_for_each(|block| {
            let pages = (block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES).step_by(PAGE_BYTES);
            let mut touches: Vec<Touch> = pages.map(|page| Touch::new(BASE + page, Kind::Read)).collect();
            space.touch(&mut touches, 256)
        })
    };
    thread::scope(|scope| {
        let toucher = scope.spawn(move || touch_all(0));
        let reader = scope.spawn(|| verify(&mirror.words, process.words, 2));
        touch_all(1)?;
        toucher.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        reader.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?
    })
}

fn atomics_add_up(process: &Process) -> anyhow::Result<()> {
    const EACH: u64 = 1000;
    let mirror = &process.gpu(0)?.2;
    let pages = process.words / PAGE_WORDS;
    for page in 0..pages {
        process.managed.write(page * PAGE_WORDS, 0);
    }
    let add = |words: &Words, seed| {
        let mut dice = Dice::new(seed);
        for _ in 0..EACH {
            words.add(dice.index(pages) * PAGE_WORDS, 1);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| add(&process.managed, 1));
        add(&mirror.words, 2);
    });
    let sum: u64 = (0..pages).map(|page| process.managed.read(page * PAGE_WORDS)).sum();
    ensure!(sum == 2 * EACH, "the sum is {sum} instead of {}", 2 * EACH);
    fill(&process.managed, process.words, 2);
    Ok(())
}

fn device_memory_evicts(process: &Process) -> anyhow::Result<()> {
    let (gpu, _, mirror) = process.gpu(0)?;
    fill(&mirror.words, process.words, 4);
    let memory = gpu.alloc(gpu.memory_bytes / 2)?;
    verify(&mirror.words, process.words, 4)?;
    gpu.free(&memory)?;
    Ok(())
}

fn gpus_see_each_other(process: &Process) -> anyhow::Result<()> {
    let words = 4 * (BLOCK_BYTES / WORD_BYTES) as usize;
    for (round, (_, _, writer)) in (5..).zip(&process.gpus) {
        fill(&writer.words, words, round);
        for (_, _, reader) in &process.gpus {
            verify(&reader.words, words, round)?;
        }
    }
    Ok(())
}

fn a_child_has_no_mirror(process: &Process) -> anyhow::Result<()> {
    let signal = process::signal_of_child(|| {
        for (_, _, mirror) in &process.gpus {
            mirror.words.read(0);
        }
    })?;
    ensure!(signal == Some(process::SIGSEGV), "the child ended with signal {signal:?}");
    Ok(())
}

/// Last, as it ends the channel of GPU 0.
fn bad_access_kills_the_channel(process: &Process) -> anyhow::Result<()> {
    let (_, space, mirror) = process.gpu(0)?;
    mirror.words.read(usize::try_from(WINDOW_BYTES / WORD_BYTES)? - 1);
    ensure!(!space.accessed(AccessCounters::default())?, "the channel lives");
    ensure!(
        (0..process.words).step_by(PAGE_WORDS).all(|word| mirror.permission(word) == 0),
        "permissions of a dead channel"
    );
    mirror.words.write(0, 1);
    mirror.words.read(process.words - 1);
    let mut touch = [Touch::new(BASE, Kind::Read)];
    ensure!(space.touch(&mut touch, 1).is_err(), "a dead channel translates");
    // The first word is the CPU's to read, and has not been written by a dead channel.
    ensure!(process.managed.read(0) != 1, "a dead channel wrote");
    Ok(())
}
