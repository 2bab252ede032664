//! Lines of a journal that this version cannot apply: of a later version, and damaged ones. They
//! stay in the file unchanged, so that nothing is lost when a later version replaces uvmd, and
//! damaged ones can still be read by hand.

use model::{ProcessId, Step};

use super::line::Newer;

/// Maximum that stays in the file. With more, the whole file is moved away.
pub(super) const UNRECOGNISED_BYTES_MAX: usize = 1 << 20;

/// Unrecognised content of a journal.
#[derive(Clone, Debug, Default)]
pub(super) struct Unrecognised {
    newer: Vec<(Newer, Vec<u8>)>,
    damaged: Vec<Vec<u8>>,
    /// Runs of zero bytes within the file, as after a power cut: their former content is lost.
    gaps: u64,
    bytes: usize,
    /// Whether there was more than may stay in the file.
    pub(super) is_overfull: bool,
}

impl Unrecognised {
    pub(super) fn add_newer(&mut self, newer: Newer, text: &[u8]) {
        if self.has_room(text) {
            self.newer.push((newer, text.to_owned()));
        }
    }

    pub(super) fn add_damaged(&mut self, text: &[u8]) {
        if self.has_room(text) {
            self.damaged.push(text.to_owned());
        }
    }

    pub(super) const fn add_gap(&mut self) {
        self.gaps += 1;
    }

    fn has_room(&mut self, text: &[u8]) -> bool {
        let bytes = self.bytes + text.len() + 1;
        if bytes > UNRECOGNISED_BYTES_MAX {
            self.is_overfull = true;
            return false;
        }
        self.bytes = bytes;
        true
    }

    /// Drops lines about nothing in force: those of another boot, if `is_of_this_boot` is false,
    /// and of exited processes.
    pub(super) fn retain(&mut self, boot: &str, is_of_this_boot: bool, mut is_alive: impl FnMut(ProcessId) -> bool) {
        self.newer.retain(|(newer, _)| newer.boot.as_ref().map_or(is_of_this_boot, |found| found == boot));
        if !is_of_this_boot {
            self.damaged.clear();
            self.gaps = 0;
        }
        self.retain_processes(&mut is_alive);
    }

    /// Drops lines about exited processes.
    pub(super) fn retain_processes(&mut self, mut is_alive: impl FnMut(ProcessId) -> bool) {
        self.newer.retain(|(newer, _)| newer.process.is_none_or(&mut is_alive));
        self.bytes = self.lines().map(|line| line.len() + 1).sum();
    }

    /// Processes of the lines, as far as known.
    pub(super) fn processes(&self) -> Vec<ProcessId> {
        self.newer.iter().filter_map(|(newer, _)| newer.process).collect()
    }

    /// Lines as in the file.
    pub(super) fn lines(&self) -> impl Iterator<Item = &[u8]> {
        self.newer.iter().map(|(_, text)| text).chain(&self.damaged).map(Vec::as_slice)
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Version of a line that may be about this memory.
    pub(super) fn blocking_version(&self, process: ProcessId, step: &Step) -> Option<u64> {
        let is_about = |newer: &Newer| {
            newer.process.is_none_or(|named| named == process)
                && newer.range.is_none_or(|(begin, end)| begin < step.end && step.begin < end)
        };
        self.newer.iter().find(|(newer, _)| is_about(newer)).map(|(newer, _)| newer.version)
    }

    /// Message on lines of a later version; `None` if there are none.
    pub(super) fn newer_warning(&self) -> Option<String> {
        let versions = self.newer.iter().map(|(newer, _)| newer.version);
        let latest = versions.max()?;
        let mut pids: Vec<_> = self.newer.iter().filter_map(|(newer, _)| Some(newer.process?.pid)).collect();
        pids.sort_unstable();
        pids.dedup();
        let shown: Vec<_> = pids.iter().take(PIDS_SHOWN).map(ToString::to_string).collect();
        let more = if pids.len() > shown.len() { ", and others" } else { "" };
        let of = if shown.is_empty() { String::new() } else { format!(", of processes {}{more}", shown.join(", ")) };
        Some(format!(
            "{} lines are of a later version of uvmd (format {latest}){of}: their advice is not withdrawn, and that memory gets no other advice; run that \
             version with --withdraw, or stop these processes",
            self.newer.len()
        ))
    }

    /// Message on damage; `None` if there is none.
    pub(super) fn damage_warning(&self) -> Option<String> {
        let places = self.damaged.len() as u64 + self.gaps;
        (places > 0).then(|| {
            format!(
                "it is damaged in {places} places: advice recorded there is not withdrawn, and ends with its process; once the processes of that time \
                 have exited, stop uvmd and delete the file"
            )
        })
    }
}

/// Maximum of process ids in a warning.
const PIDS_SHOWN: usize = 8;
