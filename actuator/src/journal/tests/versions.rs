//! Files of other versions, and damaged ones.

use std::{fs::OpenOptions, os::unix::fs::MetadataExt};

use super::*;

const READ: Advice = Advice::ReadDuplication;

/// Line of a page of advice on process 42 in boot "first".
fn line(page: u64) -> String {
    let (begin, end) = (page * 4096, (page + 1) * 4096);
    sealed(&format!(
        r#"{{"version":1,"boot":"first","pid":42,"start_ticks":7,"gpu":"{GPU}","begin":{begin},"end":{end},"advice":"read_duplication""#
    ))
}

fn sealed(body: &str) -> String {
    format!("{body},\"crc32\":\"{:08x}\"}}\n", crc32fast::hash(body.as_bytes()))
}

/// Line of a later version, with unknown content about pages 10 and 11 of a process.
fn newer(process: ProcessId, boot: &str) -> String {
    let ProcessId { pid, start_ticks } = process;
    sealed(&format!(
        "{{\"version\":2,\"boot\":\"{boot}\",\"pid\":{pid},\"start_ticks\":{start_ticks},\"begin\":40960,\"end\":49152,\"wish\":{{\"kind\":[1,2]}}"
    ))
}

fn write(machine: &Machine, text: impl AsRef<[u8]>) {
    machine.write("proc/journal", text);
}

fn left(journal: &Journal) -> Vec<Step> {
    journal.leftovers().into_iter().flat_map(|left| left.steps).collect()
}

#[test]
fn lines_of_a_later_version_are_preserved_and_block_their_ranges() {
    let machine = machine();
    let newer = newer(LIVING, "first");
    write(&machine, format!("{}{newer}", line(0)));
    let journal = open(&machine);
    let health = journal.health();
    assert_eq!((health.unrecognised_bytes, health.warnings.len()), (newer.len() as u64, 1));
    let warning = "1 lines are of a later version of uvmd (format 2), of processes 42: their advice is not withdrawn";
    assert!(health.warnings[0].contains(warning), "{health:?}");
    let refused = Intent::begin(&journal, (LIVING, GPU), &[step(0, 45056, Action::Advise(READ))], || {}).err().unwrap();
    assert!(matches!(refused, JournalError::Newer { version: 2, .. }), "{refused}");
    give(&journal, LIVING, GPU, &[step(0, 40960, Action::Advise(READ))]);
    // After any number of rewrites.
    drop(journal);
    drop(open(&machine));
    assert!(text(&machine).contains(&newer));
    // Until no memory is left that it could be about.
    let journal = open(&machine);
    machine.remove("proc/42");
    assert_eq!(journal.health(), JournalHealth { is_writable: true, ..JournalHealth::default() });
    drop(journal);
    assert!(
        !{
            drop(open(&machine));
            text(&machine)
        }
        .contains("\"version\":2")
    );
}

#[test]
fn lines_of_a_later_version_on_exited_processes_are_removed() {
    for (process, boot) in [(ProcessId { pid: 42, start_ticks: 8 }, "first"), (LIVING, "zeroth")] {
        let machine = machine();
        write(&machine, newer(process, boot));
        assert_eq!(open(&machine).health().warnings, [""; 0]);
        assert!(!text(&machine).contains("\"version\":2"));
    }
}

#[test]
fn damaged_lines_stay_until_reboot() {
    let machine = machine();
    let journal = open(&machine);
    give(&journal, LIVING, GPU, &[step(0, 4096, Action::Advise(READ))]);
    drop(journal);
    let whole = text(&machine);
    let half = &whole.lines().last().unwrap()[..80];
    write(&machine, format!("{whole}{half}\n\0\0\0\0{}", whole.lines().last().unwrap()));
    for _ in 0..2 {
        let journal = open(&machine);
        assert_eq!(left(&journal), [step(0, 4096, withdraw(READ))]);
        let health = journal.health();
        assert_eq!(health.unrecognised_bytes, half.len() as u64 + 1);
        assert!(health.warnings[0].contains("it is damaged in"), "{health:?}");
        assert!(text(&machine).contains(&format!("\n{half}\n")));
    }
    machine.write("proc/sys/kernel/random/boot_id", "second\n");
    assert_eq!(open(&machine).health().warnings, [""; 0]);
    assert!(!text(&machine).contains(half));
}

#[test]
fn unfinished_line_is_removed() {
    let machine = machine();
    let journal = open(&machine);
    give(&journal, LIVING, GPU, &[step(0, 4096, Action::Advise(READ))]);
    drop(journal);
    let whole = text(&machine);
    write(&machine, format!("{whole}{}", &whole[..100]));
    let journal = open(&machine);
    assert_eq!((left(&journal).len(), journal.health().warnings), (1, vec![]));
    assert_eq!(text(&machine), whole);
    // It lacks only its line feed.
    write(&machine, whole.trim_end());
    drop(journal);
    assert_eq!(left(&open(&machine)).len(), 1);
}

#[test]
fn oversized_journal_is_moved_away_and_its_advice_stays_in_force() {
    let machine = machine();
    let path = machine.roots.proc.join("journal");
    let quarantine = machine.roots.proc.join("journal.unrecognised");
    let noise = format!("{}\n", "x".repeat(60_000)).repeat(20);
    write(&machine, format!("{noise}{}", line(0)));
    let inode = fs::metadata(&path).unwrap().ino();
    let journal = open(&machine);
    assert_eq!(left(&journal).len(), 1);
    assert_eq!(fs::metadata(&quarantine).unwrap().ino(), inode, "the file itself");
    let health = journal.health();
    assert!(
        health
            .warnings
            .iter()
            .any(|each| each.contains("journal.unrecognised is a journal with more entries than fit"))
    );
    drop(journal);
    // There is one such place.
    write(&machine, noise);
    let error = Journal::open(&path, machine.roots.clone()).unwrap_err().to_string();
    assert!(error.contains("journal.unrecognised already exists"), "{error}");
    fs::remove_file(&quarantine).unwrap();
    drop(open(&machine));
}

#[test]
fn read_of_a_huge_journal_is_bounded() {
    let machine = machine();
    let path = machine.roots.proc.join("journal");
    write(&machine, line(0) + &line(2));
    // Only zeros follow.
    OpenOptions::new().append(true).open(&path).unwrap().set_len(10 << 30).unwrap();
    let journal = open(&machine);
    assert_eq!(left(&journal).len(), 2);
    assert!(fs::metadata(&path).unwrap().len() < 4096);
    assert_eq!(fs::metadata(machine.roots.proc.join("journal.unrecognised")).unwrap().len(), 10 << 30);
}
