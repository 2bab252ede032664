//! Hostile programs with memory on a GPU, most with a [ring](super::ring) of their own: what they claim,
//! and what they have uvmd read, is without measure. Those with a ring take what processor time they
//! get: none waits asleep.

use std::{
    hint, thread,
    time::{Duration, Instant},
};

use gpu::{
    Kind,
    swgpu::{Gpu, GpuAccess, Kernel, Space},
    uvm::VaSpace,
    words::Words,
};

use super::{announce, ring::Ring, wait};
use crate::sys::{memory, process};

/// Address of managed memory.
const ADDRESS: u64 = 0x200_0000_0000;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Block of the driver.
const BLOCK_BYTES: u64 = 2 * MIB;

/// Managed memory on which the last GPU of the machine works, so that uvmd counts a GPU of the
/// process.
struct Managed {
    // In the order in which they must be closed.
    memory: Words,
    _va_space: VaSpace,
    space: Space,
    gpu: Gpu,
}

impl Managed {
    fn new(bytes: u64) -> anyhow::Result<Self> {
        let gpu = Gpu::open(Gpu::open(0)?.count - 1)?;
        let mut va_space = VaSpace::new([&gpu.uuid])?;
        va_space.attach_address_space()?;
        let space = gpu.space()?;
        va_space.attach(&gpu.uuid, &space)?;
        let memory = Words::managed(&va_space, ADDRESS, bytes)?;
        Ok(Self { memory, _va_space: va_space, space, gpu })
    }

    /// Has the GPU fault on the first page.
    fn fault(&self) -> anyhow::Result<()> {
        self.memory.add(0, 1);
        let kernel = Kernel { gpu: self.gpu.number(), kind: Kind::Read, window: 1, access_millibytes: 0 };
        Ok(self.space.run(&kernel, &mut [GpuAccess { va: ADDRESS, value: 0 }])?)
    }
}

/// Spins until this long after a time.
fn spin_from(begin: Instant, duration: Duration) {
    while begin.elapsed() < duration {
        hint::spin_loop();
    }
}

/// Program whose memory moves to the GPU and back, with pauses that keep it from being pinned.
pub(super) fn faults() -> anyhow::Result<()> {
    let managed = Managed::new(BLOCK_BYTES)?;
    announce("faults");
    loop {
        managed.fault()?;
        thread::sleep(Duration::from_millis(5));
    }
}

/// Runs programs, each with its number, until they are killed with this process.
fn run(count: u64, program: impl Fn(u64) -> anyhow::Result<()>) -> anyhow::Result<()> {
    for number in 0..count {
        process::start_child(|| program(number))?;
    }
    wait()
}

/// Launches without end, in iterations of this duration, each with a fault of the GPU: launch `n` has
/// the pointers of `n`.
fn iterate(
    attack: &str,
    managed: &Managed,
    ring: &mut Ring,
    duration: Duration,
    launches: u64,
    pointers: impl Fn(u64) -> Vec<u64>,
) -> anyhow::Result<()> {
    announce(attack);
    loop {
        let begin = Instant::now();
        managed.fault()?;
        for launch in 0..launches {
            ring.launch(launch, &pointers(launch));
        }
        ring.sync();
        spin_from(begin, duration);
    }
}

/// Two programs that claim an allocation of 2^60 and one of 2^48 bytes.
pub(super) fn claims() -> anyhow::Result<()> {
    run(2, |number| {
        let (managed, mut ring) = (Managed::new(BLOCK_BYTES)?, Ring::create()?);
        ring.malloc(ADDRESS, 1 << if number == 0 { 60 } else { 48 });
        let pointers = |launch| vec![ADDRESS + launch * BLOCK_BYTES];
        iterate("claims", &managed, &mut ring, Duration::from_millis(20), 24, pointers)
    })
}

/// Two programs with iterations that take planners long: 1,000 launches on four claimed blocks of 39
/// GiB, and 16,000 on memory that is mapped.
pub(super) fn iterations() -> anyhow::Result<()> {
    const BLOCKS: u64 = 4;
    run(2, |number| {
        let is_claimed = number == 0;
        let (bytes, launches) = if is_claimed { (39 * GIB, 1000) } else { (256 * MIB, 16_000) };
        let managed = Managed::new(if is_claimed { BLOCK_BYTES } else { BLOCKS * bytes })?;
        let mut ring = Ring::create()?;
        (0..BLOCKS).for_each(|block| ring.malloc(ADDRESS + block * bytes, bytes));
        let step = bytes * BLOCKS / launches / 4096 * 4096;
        let pointers = |launch| vec![ADDRESS + launch % BLOCKS * bytes + launch / BLOCKS * step];
        let duration = Duration::from_millis(if is_claimed { 100 } else { 1000 });
        iterate("iterations", &managed, &mut ring, duration, launches, pointers)
    })
}

/// Program whose iterations use more than 65,536 different ranges of memory.
pub(super) fn extents() -> anyhow::Result<()> {
    const LAUNCHES: u64 = 4096;
    const OF_LAUNCH: u64 = 20;
    const EXTENT_BYTES: u64 = 16 << 10;
    let managed = Managed::new(LAUNCHES * OF_LAUNCH * EXTENT_BYTES)?;
    let mut ring = Ring::create()?;
    ring.malloc(ADDRESS, LAUNCHES * OF_LAUNCH * EXTENT_BYTES);
    // Those of a launch lie apart, so that they are not one range.
    let pointers = |launch| (0..OF_LAUNCH).map(|at| ADDRESS + (at * LAUNCHES + launch) * EXTENT_BYTES).collect();
    iterate("extents", &managed, &mut ring, Duration::from_millis(500), LAUNCHES, pointers)
}

/// Eight programs with a graph of 60,000 nodes, which they change without end.
pub(super) fn graphs() -> anyhow::Result<()> {
    const NODES: u64 = 60_000;
    /// Changes that uvmd finds at a time: fewer than those after which it would give the program up.
    const BATCH: u64 = 400;
    run(8, |_| {
        let (_va_space, mut ring) = (VaSpace::new([])?, Ring::create()?);
        announce("graphs");
        for change in 0.. {
            if change % BATCH == 0 {
                ring.wait_until_read();
            }
            ring.node(1, change.min(NODES));
        }
        Ok(())
    })
}

/// Three programs with 60,000 mappings, which close and open the driver.
pub(super) fn maps() -> anyhow::Result<()> {
    const MAPPINGS: usize = 60_000;
    /// So long that uvmd sees that a process has come, or gone.
    const TURN: Duration = Duration::from_millis(1500);
    run(3, |_| {
        let page = memory::sealed(c"attack", 4096)?;
        let _mappings = (0..MAPPINGS).map(|_| Words::map(&page, 0, 0, 4096)).collect::<Result<Vec<_>, _>>()?;
        announce("maps");
        loop {
            let va_space = VaSpace::new([])?;
            spin_from(Instant::now(), TURN);
            drop(va_space);
            spin_from(Instant::now(), TURN);
        }
    })
}

/// Eight programs whose rings have no memory, but for that which reading gives them.
pub(super) fn holes() -> anyhow::Result<()> {
    run(8, |_| {
        let (_va_space, mut ring) = (VaSpace::new([])?, Ring::create()?);
        announce("holes");
        loop {
            ring.fill_with_holes()?;
            ring.wait_until_read();
            spin_from(Instant::now(), Duration::from_millis(500));
        }
    })
}

/// Eight programs whose rings stay empty.
pub(super) fn idle() -> anyhow::Result<()> {
    run(8, |_| {
        let (_va_space, _ring) = (VaSpace::new([])?, Ring::create()?);
        announce("idle");
        wait()
    })
}
