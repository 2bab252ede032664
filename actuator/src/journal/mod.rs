//! What advice may be in force, written down before it is given: the driver keeps advice whatever becomes of who gave it, and cannot be asked which
//! there is. So whoever comes after a uvmd that was killed reads here what to withdraw.
//!
//! The file has a line of JSON for each piece of advice that is about to be given, which is on the disk before the driver is called, and one for each that
//! was withdrawn. The other way round nothing has to be on the disk: what is withdrawn twice is withdrawn. A process is known by its id, when it
//! started, and the boot in which it did; with the process its advice ends too, and its lines go the next time that the file is written anew.

mod actuator;
mod in_force;
mod line;

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

pub use actuator::Journalled;
use in_force::InForce;
use line::Line;
use model::{Action, GpuUuid, ProcessId, Step};
use sys::{Roots, kernel, private};
use thiserror::Error;

use crate::process::is_alive;

/// It is written anew when it has so many lines more than it needs.
const SPARE_LINES_MAX: usize = 1024;

/// Why the journal cannot be kept. No advice can be given then.
#[derive(Debug, Error)]
#[error("the journal {path} cannot be {what}: {}", sys::reason(source))]
pub struct JournalError {
    path: PathBuf,
    what: &'static str,
    source: io::Error,
}

/// Advice of a former run that may still be in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// On whose memory.
    pub process: ProcessId,
    /// At which GPU it was decided.
    pub gpu: GpuUuid,
    /// What withdraws it.
    pub steps: Vec<Step>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    roots: Roots,
    boot: String,
    file: File,
    /// Up to here the file holds whole lines.
    bytes: u64,
    lines: usize,
    /// So many were needed when it was written anew.
    needed: usize,
    in_force: InForce,
    /// Held for as long as this is: two that keep one journal would withdraw each other's advice.
    _lock: File,
}

impl Journal {
    /// The journal in this file, which is made if it is not there. What it says of processes that live is kept: [`Journal::leftovers`]. A last line
    /// that was not written to its end was followed by no call, and is left out, as is what nobody can read, with a warning.
    ///
    /// # Errors
    /// If it cannot be read or written.
    pub fn open(path: impl Into<PathBuf>, roots: Roots) -> Result<Self, JournalError> {
        let path = path.into();
        let failed = |what| {
            let path = path.clone();
            move |source| JournalError { path, what, source }
        };
        let boot = kernel::boot_id(&roots).map_err(failed("kept without the boot's id"))?;
        let lock = lock_file(&path).map_err(failed("written"))?;
        lock.try_lock().map_err(|error| failed("kept by two at once")(error.into()))?;
        let text = private::read(&path).map_err(failed("read"))?.unwrap_or_default();
        let in_force = read(&text, &boot, &path);
        let (file, bytes, lines, in_force) = rewrite(&path, &boot, &roots, in_force).map_err(failed("written"))?;
        Ok(Self { path, roots, boot, file, bytes, lines, needed: lines, in_force, _lock: lock })
    }

    /// What is in force, as far as is known, by process and GPU: after [`Journal::open`], what a former run left.
    #[must_use]
    pub fn leftovers(&self) -> Vec<Leftover> {
        let mut found: BTreeMap<(ProcessId, GpuUuid), Vec<Step>> = BTreeMap::new();
        for (process, gpu, begin, end, advice) in self.in_force.iter() {
            found.entry((process, gpu)).or_default().push(Step { begin, end, action: Action::Withdraw(advice) });
        }
        found.into_iter().map(|((process, gpu), steps)| Leftover { process, gpu, steps }).collect()
    }

    /// Advice of these steps is about to be given. Once this returns the disk has it.
    ///
    /// # Errors
    /// If it cannot be written: then it must not be given.
    pub fn intend(&mut self, process: ProcessId, gpu: GpuUuid, steps: &[Step]) -> Result<(), JournalError> {
        let mut lines = Vec::new();
        for step in steps {
            if let Action::Advise(advice) = step.action {
                lines.push(Line::new(&self.boot, process, gpu, (step.begin, step.end), advice, false));
            }
        }
        if lines.is_empty() {
            return Ok(());
        }
        let text = line::text(&lines);
        self.append(text, true).map_err(|source| self.failed(source))?;
        for step in steps {
            if let Action::Advise(advice) = step.action {
                self.in_force.add(process, gpu, (step.begin, step.end), advice);
            }
        }
        self.tidy()
    }

    /// Advice of this kind is no longer in force in this range. That it could not be written down is told and does no harm: at worst it is
    /// withdrawn again.
    pub fn withdrawn(&mut self, process: ProcessId, gpu: GpuUuid, step: &Step) {
        let (Action::Advise(advice) | Action::Withdraw(advice)) = step.action else { return };
        if !self.in_force.remove(process, (step.begin, step.end), advice) {
            return;
        }
        let text = line::text(&[Line::new(&self.boot, process, gpu, (step.begin, step.end), advice, true)]);
        self.withdraw(text);
    }

    fn withdraw(&mut self, text: io::Result<Vec<u8>>) {
        let kept = self.append(text, false).map_err(|source| self.failed(source)).and_then(|()| self.tidy());
        if let Err(error) = kept {
            tracing::warn!("{error}");
        }
    }

    /// Advice of this step was not given after all: what is in force there is what was before.
    fn not_given(&mut self, process: ProcessId, gpu: GpuUuid, step: &Step, before: &InForce) {
        let Action::Advise(advice) = step.action else { return };
        let range = (step.begin, step.end);
        let mut lines = vec![Line::new(&self.boot, process, gpu, range, advice, true)];
        self.in_force.remove(process, range, advice);
        for (range, advice, gpu) in before.within(process, range, advice) {
            lines.push(Line::new(&self.boot, process, gpu, range, advice, false));
            self.in_force.add(process, gpu, range, advice);
        }
        let text = line::text(&lines);
        self.withdraw(text);
    }

    /// The process has ended, and its advice with it.
    pub fn ended(&mut self, process: ProcessId) {
        self.in_force.forget(process);
    }

    fn append(&mut self, text: io::Result<Vec<u8>>, on_disk: bool) -> io::Result<()> {
        let text = text?;
        // What was written of a line before the disk was full must not become the beginning of this one.
        self.file.set_len(self.bytes)?;
        self.file.write_all_at(&text, self.bytes)?;
        if on_disk {
            self.file.sync_data()?;
        }
        self.bytes += text.len() as u64;
        self.lines += text.split_inclusive(|byte| *byte == b'\n').count();
        Ok(())
    }

    /// Written anew where most of it may be of no use any more: that of processes which ended unseen is known only then.
    fn tidy(&mut self) -> Result<(), JournalError> {
        if self.lines <= 2 * self.needed + SPARE_LINES_MAX {
            return Ok(());
        }
        let in_force = std::mem::take(&mut self.in_force);
        let kept = in_force.clone();
        match rewrite(&self.path, &self.boot, &self.roots, in_force) {
            Ok((file, bytes, lines, in_force)) => {
                (self.file, self.bytes, self.in_force) = (file, bytes, in_force);
                (self.lines, self.needed) = (lines, lines);
                Ok(())
            }
            Err(source) => {
                // The new file may have the name already, and ours none. So no advice is given until it could be written anew, which the next line
                // brings on, as there are as many as before.
                self.in_force = kept;
                Err(self.failed(source))
            }
        }
    }

    fn failed(&self, source: io::Error) -> JournalError {
        JournalError { path: self.path.clone(), what: "written", source }
    }
}

/// What a file says of processes of this boot.
fn read(text: &[u8], boot: &str, path: &Path) -> InForce {
    let mut in_force = InForce::default();
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let mut unreadable = 0;
    for line in text.get(..whole).unwrap_or_default().split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        match Line::parse(line) {
            Some(line) if line.boot == boot => line.apply(&mut in_force),
            Some(_) => {}
            None => unreadable += 1,
        }
    }
    if unreadable > 0 {
        tracing::warn!(
            "{unreadable} lines of the journal {} cannot be read: advice that they name is not withdrawn",
            path.display()
        );
    }
    in_force
}

/// In a file beside it, as the journal itself is replaced.
fn lock_file(path: &Path) -> io::Result<File> {
    private::open(
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600),
        &private::beside(path, "lock"),
    )
}

/// Writes what is in force of processes that live, in place of what the file held, and has it on the disk.
fn rewrite(path: &Path, boot: &str, roots: &Roots, mut in_force: InForce) -> io::Result<(File, u64, usize, InForce)> {
    // Who cannot be looked at may live.
    in_force.retain(|process| is_alive(roots, process).unwrap_or(true));
    let lines: Vec<_> = in_force
        .iter()
        .map(|(process, gpu, begin, end, advice)| Line::new(boot, process, gpu, (begin, end), advice, false))
        .collect();
    let text = line::text(&lines)?;
    let file = private::replace(path, &text)?;
    let count = lines.len();
    Ok((file, text.len() as u64, count, in_force))
}

#[cfg(test)]
mod tests;
