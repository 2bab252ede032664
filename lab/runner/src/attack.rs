//! A hostile process: what an account without rights can do to the driver so that whoever watches it runs out of something.
//!
//! It works until it is killed, as user [`NOBODY`], and prints a line when the attack is at its full strength.

use std::{process, thread, time::Duration};

use anyhow::Context;

use crate::sys::{process as own, uvm::VaSpace};

/// The user as whom it works.
const NOBODY: u32 = 65534;
/// More than uvmd has room for of one process and of one user.
const SPACES: usize = 9000;
/// VA spaces of the attack by calls, each with a count of its own for each kind of call.
const CALLERS: usize = 2000;
/// What no process has managed memory at.
const NOWHERE: u64 = 0x7000_0000_0000;
const PAGE_BYTES: u64 = 4096;

/// What to exhaust.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Attack {
    /// Make VA spaces, and keep them.
    Spaces,
    /// Open the driver and close it, without end.
    Churn,
    /// Ask many VA spaces for what fails.
    Calls,
    /// Start processes that open the driver and end, without end.
    Processes,
    /// Each of these, in a process of its own.
    All,
}

pub(crate) fn attack(attack: Attack) -> anyhow::Result<()> {
    own::allow_descriptors(SPACES as u64 + 100)?;
    own::become_user(NOBODY)?;
    match attack {
        Attack::Spaces => spaces(),
        Attack::Churn => churn(),
        Attack::Calls => calls(),
        Attack::Processes => processes(),
        Attack::All => all(),
    }
}

fn begins(attack: &str) {
    println!("attack {attack} by process {}", process::id());
}

fn wait() -> ! {
    loop {
        thread::sleep(Duration::from_hours(1));
    }
}

fn spaces() -> anyhow::Result<()> {
    let spaces = (0..SPACES).map(|_| VaSpace::new([])).collect::<anyhow::Result<Vec<_>>>()?;
    begins("spaces");
    let _held = spaces;
    wait()
}

fn churn() -> anyhow::Result<()> {
    begins("churn");
    loop {
        VaSpace::new([])?;
    }
}

fn calls() -> anyhow::Result<()> {
    let spaces = (0..CALLERS).map(|_| VaSpace::new([])).collect::<anyhow::Result<Vec<_>>>()?;
    let mut is_told = false;
    loop {
        for space in &spaces {
            // Each is refused, as nothing is there.
            let _ = space.migrate(NOWHERE, PAGE_BYTES, None);
            let _ = space.set_preferred_location(NOWHERE, PAGE_BYTES, None);
            let _ = space.unset_preferred_location(NOWHERE, PAGE_BYTES);
            let _ = space.set_accessed_by(NOWHERE, PAGE_BYTES, None);
            let _ = space.unset_accessed_by(NOWHERE, PAGE_BYTES, None);
            let _ = space.enable_read_duplication(NOWHERE, PAGE_BYTES);
            let _ = space.disable_read_duplication(NOWHERE, PAGE_BYTES);
        }
        if !std::mem::replace(&mut is_told, true) {
            begins("calls");
        }
    }
}

fn processes() -> anyhow::Result<()> {
    begins("processes");
    loop {
        own::in_a_child(|| drop(VaSpace::new([])))?;
    }
}

/// Its children are killed with it.
fn all() -> anyhow::Result<()> {
    let program = std::env::current_exe().context("no program")?;
    let attacks = ["spaces", "churn", "calls", "processes"];
    let children =
        attacks.map(|attack| process::Command::new(&program).args(["attack", attack, "--with-parent"]).spawn());
    for child in children {
        child.context("cannot start an attack")?;
    }
    wait()
}
