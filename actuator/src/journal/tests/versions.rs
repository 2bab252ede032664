//! Files of other versions, and damaged ones.

use std::{borrow::Cow, fs::OpenOptions, os::unix::fs::MetadataExt};

use serde::Deserialize;

use super::*;

const READ: Advice = Advice::ReadDuplication;

/// Line in the first uvmd's format, for process 42 in boot "first".
const FIRST: &str = r#"{"boot":"first","pid":42,"start_ticks":7,"gpu":"GPU-01010101-0101-0101-0101-010101010101","begin":4096,"end":8192,"advice":"preferred_location","processor":"GPU-02020202-0202-0202-0202-020202020202"}
{"boot":"first","pid":42,"start_ticks":7,"gpu":"GPU-01010101-0101-0101-0101-010101010101","begin":0,"end":8192,"advice":"read_duplication"}
{"boot":"first","pid":42,"start_ticks":7,"gpu":"GPU-01010101-0101-0101-0101-010101010101","begin":0,"end":4096,"advice":"read_duplication","is_withdrawn":true}
"#;

/// Parser of the first uvmd: further members are ignored, and a missing one makes the line invalid.
#[derive(Debug, Deserialize)]
#[expect(dead_code, reason = "that they are there is what counts")]
struct FirstLine<'a> {
    boot: Cow<'a, str>,
    pid: u32,
    start_ticks: u64,
    gpu: String,
    begin: u64,
    end: u64,
    advice: FirstKind,
    #[serde(default)]
    processor: Option<String>,
    #[serde(default)]
    is_withdrawn: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FirstKind {
    PreferredLocation,
    AccessedBy,
    ReadDuplication,
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
fn journal_of_the_first_version_is_read() {
    let machine = machine();
    write(&machine, FIRST);
    let journal = open(&machine);
    let at_gpu = withdraw(Advice::PreferredLocation(Place::Gpu(OTHER_GPU)));
    assert_eq!(left(&journal), [step(4096, 8192, at_gpu), step(4096, 8192, withdraw(READ))]);
    assert_eq!(journal.health().warnings, [""; 0]);
    drop(journal);
    assert!(text(&machine).lines().all(|line| line.starts_with("{\"version\":1,")), "written anew");
}

#[test]
fn journal_stays_readable_by_the_first_version() {
    let machine = machine();
    write(&machine, FIRST.to_owned() + &newer(LIVING, "first") + "damaged\n");
    let journal = open(&machine);
    give(&journal, LIVING, GPU, &[step(0, 4096, Action::Advise(Advice::AccessedBy(OTHER_GPU)))]);
    withdrawn(&journal, LIVING, GPU, step(4096, 8192, withdraw(READ)));
    drop(journal);
    let text = text(&machine);
    let (read, not): (Vec<_>, Vec<_>) =
        text.lines().partition(|line| serde_json::from_str::<FirstLine<'_>>(line).is_ok());
    assert_eq!(read.len(), 4);
    assert!(read.iter().all(|line| line.contains("\"version\":1,")));
    // The header, and lines it could not know: it warned of these, and omitted them.
    let names = ["{\"version\":1,\"boot\":\"first\",\"crc32\"", "{\"version\":2,", "damaged"];
    assert_eq!(not.len(), 3);
    assert!(not.iter().zip(names).all(|(line, name)| line.starts_with(name)), "{not:?}");
}

#[test]
fn lines_of_a_later_version_are_preserved_and_block_their_ranges() {
    let machine = machine();
    let line = newer(LIVING, "first");
    write(&machine, format!("{FIRST}{line}"));
    let journal = open(&machine);
    let health = journal.health();
    assert_eq!((health.unrecognised_bytes, health.warnings.len()), (line.len() as u64, 1));
    let warning = "1 lines are of a later version of uvmd (format 2), of processes 42: their advice is not withdrawn";
    assert!(health.warnings[0].contains(warning), "{health:?}");
    let refused = Intent::begin(&journal, (LIVING, GPU), &[step(0, 45056, Action::Advise(READ))], || {}).err().unwrap();
    assert!(matches!(refused, JournalError::Newer { version: 2, .. }), "{refused}");
    give(&journal, LIVING, GPU, &[step(0, 40960, Action::Advise(READ))]);
    // After any number of rewrites.
    drop(journal);
    drop(open(&machine));
    assert!(text(&machine).contains(&line));
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
    let line = FIRST.lines().next().unwrap();
    write(&machine, format!("{noise}{line}\n"));
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
    write(&machine, FIRST);
    // Only zeros follow.
    OpenOptions::new().append(true).open(&path).unwrap().set_len(10 << 30).unwrap();
    let journal = open(&machine);
    assert_eq!(left(&journal).len(), 2);
    assert!(fs::metadata(&path).unwrap().len() < 4096);
    assert_eq!(fs::metadata(machine.roots.proc.join("journal.unrecognised")).unwrap().len(), 10 << 30);
}
