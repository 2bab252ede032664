//! Hostile process: exhausts resources of programs that watch the driver, as a user without
//! privileges can.
//!
//! Runs as an unprivileged user until it is killed, and prints a line when the attack has reached its
//! full strength.
//!
//! * [`programs`]: attacks by rings of calls, as the helper makes them; [`ring`]: such a ring
//! * [`relay`]: a VA space that changes its process

mod programs;
mod relay;
mod ring;

use std::{collections::VecDeque, process, thread, time::Duration};

use anyhow::Context;
use gpu::uvm::VaSpace;

use crate::sys::process as sys_process;

/// User id of an attack, if no other is given.
pub(crate) const NOBODY: u32 = 65534;
/// VA spaces of the attack: more than uvmd's quota of one process and of one user.
const SPACES: usize = 9000;
/// VA spaces of the attack that is inspected and not counted whole: twice uvmd's quota of a process by
/// the driver's tools, and as many as it inspects.
const SURPLUS: usize = 8;
/// VA spaces that live at a time in the attack by turnover: uvmd's quota of a process by the tools.
const TURNOVER: usize = 4;
/// VA spaces of one process of a crowd: uvmd's quota of a process.
const SHARE: usize = 256;
/// Processes of a crowd: one more than reach uvmd's quota of a user, 4,096 VA spaces.
const CROWD: usize = 17;
/// VA spaces of the attack by calls, each with a count for each kind of call.
const CALLERS: usize = 2000;
/// Address at which no process has managed memory.
const NOWHERE: u64 = 0x7000_0000_0000;
const PAGE_BYTES: u64 = 4096;

/// Resource to exhaust.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Attack {
    /// Create VA spaces, and hold them.
    Spaces,
    /// Open and close the driver, repeatedly.
    Churn,
    /// Make failing calls on many VA spaces.
    Calls,
    /// Start processes that open the driver and exit, repeatedly.
    Processes,
    /// Create as many VA spaces as uvmd counts for one process, and hold them.
    Share,
    /// Create twice as many VA spaces as uvmd counts for one process by the driver's tools, and hold
    /// them.
    Surplus,
    /// Create VA spaces, and close each a moment later, repeatedly.
    Turnover,
    /// Have memory move to a GPU and back, repeatedly.
    Faults,
    /// Pass a VA space to a new process, which returns it and exits, repeatedly.
    Relay,
    /// Start processes that each hold such a share, until their user is at its quota.
    Crowd,
    /// `spaces`, `churn`, `calls` and `processes`, each in its own process.
    All,
    /// Claim an allocation of 2^60 bytes.
    Claims,
    /// Change graphs of 60,000 nodes.
    Graphs,
    /// Open and close the driver, with 60,000 mappings.
    Maps,
    /// Launch in iterations for which planners take long.
    Iterations,
    /// Use more than 65,536 ranges of memory in an iteration.
    Extents,
    /// Have memory charged to whoever reads a ring.
    Holes,
    /// Hold as many rings as uvmd reads of a user.
    Idle,
}

pub(crate) fn attack(attack: Attack, uid: u32) -> anyhow::Result<()> {
    sys_process::allow_descriptors(SPACES as u64 + 100)?;
    sys_process::become_user(uid)?;
    match attack {
        Attack::Spaces => spaces("spaces", SPACES),
        Attack::Churn => churn(),
        Attack::Calls => calls(),
        Attack::Processes => processes(),
        Attack::Share => spaces("share", SHARE),
        Attack::Surplus => spaces("surplus", SURPLUS),
        Attack::Turnover => turnover(),
        Attack::Faults => programs::faults(),
        Attack::Relay => relay::relay(),
        Attack::Crowd => all(&["share"; CROWD]),
        Attack::All => all(&["spaces", "churn", "calls", "processes"]),
        Attack::Claims => programs::claims(),
        Attack::Graphs => programs::graphs(),
        Attack::Maps => programs::maps(),
        Attack::Iterations => programs::iterations(),
        Attack::Extents => programs::extents(),
        Attack::Holes => programs::holes(),
        Attack::Idle => programs::idle(),
    }
}

fn announce(attack: &str) {
    println!("attack {attack} by process {}", process::id());
}

fn wait() -> ! {
    loop {
        thread::sleep(Duration::from_hours(1));
    }
}

fn spaces(attack: &str, count: usize) -> anyhow::Result<()> {
    let spaces = (0..count).map(|_| VaSpace::new([])).collect::<Result<Vec<_>, _>>()?;
    announce(attack);
    let _held = spaces;
    wait()
}

fn churn() -> anyhow::Result<()> {
    announce("churn");
    loop {
        VaSpace::new([])?;
    }
}

/// Each VA space lives long enough to be found by those who look for it, and not to be counted.
fn turnover() -> anyhow::Result<()> {
    announce("turnover");
    let mut spaces = VecDeque::new();
    loop {
        spaces.push_back(VaSpace::new([])?);
        if spaces.len() > TURNOVER {
            spaces.pop_front();
        }
        thread::sleep(Duration::from_millis(20));
    }
}

fn calls() -> anyhow::Result<()> {
    let spaces = (0..CALLERS).map(|_| VaSpace::new([])).collect::<Result<Vec<_>, _>>()?;
    let mut is_announced = false;
    loop {
        for space in &spaces {
            // Each call fails, as no memory is mapped there.
            let _ = space.migrate(NOWHERE, PAGE_BYTES, None);
            let _ = space.set_preferred_location(NOWHERE, PAGE_BYTES, None);
            let _ = space.unset_preferred_location(NOWHERE, PAGE_BYTES);
            let _ = space.set_accessed_by(NOWHERE, PAGE_BYTES, None);
            let _ = space.unset_accessed_by(NOWHERE, PAGE_BYTES, None);
            let _ = space.enable_read_duplication(NOWHERE, PAGE_BYTES);
            let _ = space.disable_read_duplication(NOWHERE, PAGE_BYTES);
        }
        if !std::mem::replace(&mut is_announced, true) {
            announce("calls");
        }
    }
}

fn processes() -> anyhow::Result<()> {
    announce("processes");
    loop {
        sys_process::run_in_child(|| drop(VaSpace::new([])))?;
    }
}

/// Starts attacks. The children are killed with this process.
fn all(attacks: &[&str]) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("no program")?;
    // Collected first: one that cannot be started does not keep the others from it.
    let children: Vec<_> = attacks
        .iter()
        .map(|attack| process::Command::new(&program).args(["attack", attack, "--with-parent"]).spawn())
        .collect();
    for child in children {
        child.context("cannot start an attack")?;
    }
    wait()
}
