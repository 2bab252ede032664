//! Recordings of processes that have a ring.
#![cfg(test)]

mod program;

use std::{
    collections::BTreeMap,
    fs::{self, DirEntry},
    io,
    os::unix::fs::MetadataExt,
};

use call_ring::{
    Kind, TOTAL_BYTES,
    memory::{HEADER_BYTES, LANES},
};
use model::ProcessId;
use program::{PROGRAM, Program};
use recorder::{
    Quotas, Recordings,
    recording::{Holder, Recording, State},
};
use sys::{Roots, fake::until, processes};

fn start(bytes: usize, major: u32) -> Program {
    start_program(PROGRAM, &[bytes, major as usize, LANES, Kind::Free as usize])
}

fn start_program(program: &str, numbers: &[usize]) -> Program {
    Program::of(rustix::process::getuid().as_raw(), program, numbers)
}

fn with_ring() -> Program {
    start(TOTAL_BYTES, 1)
}

/// Whether the test may open mappings of other processes here.
fn is_permitted() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    assert!(is_root || std::env::var_os("UVMD_TEST_REQUIRE_ROOT").is_none());
    is_root
}

fn recordings() -> Recordings {
    Recordings::new(Roots::default(), Quotas { window_bytes: 1 << 20, user_max: 2, node_max: 3 })
}

/// Repeats a step until a condition holds.
fn repeat(what: &str, mut step: impl FnMut(), is_over: impl Fn() -> bool) {
    until(what, || {
        let is_over = is_over();
        if !is_over {
            step();
        }
        is_over.then_some(())
    });
}

/// Repeats scans of these processes until a condition holds.
fn scan_until(what: &str, recordings: &Recordings, running: &BTreeMap<ProcessId, u32>, is_over: impl Fn() -> bool) {
    let scan = || {
        recordings.scan(running);
        recordings.poll();
    };
    repeat(what, scan, is_over);
}

/// Repeats scans until each process has a recording.
fn scan(recordings: &Recordings, running: &BTreeMap<ProcessId, u32>) {
    let is_recorded = |process: &ProcessId| recordings.snapshot(*process).is_some();
    scan_until("a recording", recordings, running, || running.keys().all(is_recorded));
}

fn calls(recording: &Recording) -> (u64, usize) {
    (recording.window().added(), recording.window().retained())
}

#[test]
fn calls_are_read_while_the_process_runs_and_retained_after_its_exit() {
    if !is_permitted() {
        return;
    }
    let (mut program, recordings) = (with_ring(), recordings());
    let id = program.id();
    program.call();
    scan(&recordings, &BTreeMap::from([(id, 1000)]));
    recordings.poll();
    assert_eq!(calls(&recordings.snapshot(id).unwrap()), (1, 1));
    program.call();
    program.call();
    drop(program);
    recordings.scan(&BTreeMap::new());
    recordings.poll();
    let recording = recordings.snapshot(id).unwrap();
    assert_eq!((recording.state(), calls(&recording)), (&State::Ended, (3, 3)));
    assert_eq!(recording.view(2).ops.len(), 2);
}

#[test]
fn recording_ends_after_an_exec_between_two_scans() {
    if !is_permitted() {
        return;
    }
    let (begin, _) = PROGRAM.split_once("for count").unwrap();
    let next = "import sys; print('executed', flush=True); sys.stdin.readline()";
    let program =
        format!("{begin}sys.stdin.readline()\nos.execv(sys.executable, ['python3', '-c', \"\"\"{next}\"\"\"])\n");
    let mut program = start_program(&program, &[TOTAL_BYTES, 1, LANES, Kind::Free as usize]);
    let (recordings, running) = (recordings(), BTreeMap::from([(program.id(), 1000)]));
    scan(&recordings, &running);
    assert_eq!(recordings.snapshot(program.id()).unwrap().state(), &State::Recording);
    assert_eq!(program.answer(), "executed");
    // The process has the driver open in both scans.
    scan_until("no recording", &recordings, &running, || recordings.snapshot(program.id()).is_none());
}

#[test]
fn process_without_a_ring_has_no_recording() {
    if !is_permitted() {
        return;
    }
    let recordings = recordings();
    let pid = std::process::id();
    let start_ticks = processes::start_ticks(&Roots::default(), pid).unwrap().unwrap();
    let id = ProcessId { pid, start_ticks };
    recordings.scan(&BTreeMap::from([(id, 0)]));
    assert!(recordings.delay_of(id).is_some(), "it is searched");
    repeat("the end of the search", || recordings.poll(), || recordings.delay_of(id).is_none());
    assert!(recordings.snapshot(id).is_none());
}

#[test]
fn ring_of_another_version_or_size_is_unreadable_with_the_reason() {
    if !is_permitted() {
        return;
    }
    let recordings = recordings();
    let (later, larger) = (start(TOTAL_BYTES, 2), start(TOTAL_BYTES * 2, 1));
    scan(&recordings, &BTreeMap::from([(later.id(), 1000), (larger.id(), 1001)]));
    let reason = |program: &Program| recordings.snapshot(program.id()).unwrap().view(0).unreadable_reason.unwrap();
    assert_eq!(reason(&later), "its shared memory is not a ring of the helper: unsupported version 2");
    assert!(reason(&larger).starts_with("its shared memory has "), "{}", reason(&larger));
}

#[test]
fn user_at_its_quota_evicts_no_recording_of_others() {
    if !is_permitted() {
        return;
    }
    let recordings = recordings();
    let mut programs: Vec<Program> = (0..4).map(|_| with_ring()).collect();
    let mut running = BTreeMap::new();
    let states = |recordings: &Recordings, programs: &[Program]| -> Vec<Option<State>> {
        programs
            .iter()
            .map(|program| recordings.snapshot(program.id()).map(|recording| recording.state().clone()))
            .collect()
    };
    let holder = Holder { uid: 1000, recordings: 2, max: 2 };
    let [recording, full] = [State::Recording, State::QuotaReached(holder)].map(Some);
    for (program, uid) in programs.iter().zip([1000, 1000, 1000, 1001]) {
        running.insert(program.id(), uid);
        scan(&recordings, &running);
    }
    let expected = [&recording, &recording, &full, &recording].map(Clone::clone);
    assert_eq!(states(&recordings, &programs), expected, "two of a user at most");
    // The slot of an ended recording goes to the next recording of its user.
    running.remove(&programs.remove(0).id());
    let all = [&recording, &recording, &recording].map(Clone::clone);
    scan_until("a slot", &recordings, &running, || states(&recordings, &programs) == all);
}

/// Shares a ring whose lanes claim to be full of records. For each line of its input, punches holes
/// into the pages in the range of its arguments, and prints the memory that the ring takes.
const SPARSE: &str = r#"
import ctypes, fcntl, mmap, os, struct, sys
size, lanes, begin, end = map(int, sys.argv[1:])
libc = ctypes.CDLL(None, use_errno=True)
memory = os.memfd_create("uvmd-ring", os.MFD_ALLOW_SEALING)
os.posix_fallocate(memory, 0, size)
fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
ring = mmap.mmap(memory, size)
def put(at, *words): ring[at:at + 8 * len(words)] = struct.pack(f"<{len(words)}Q", *words)
for lane in range(lanes):
    put(256 + 128 * lane, 16384 if lane == 0 else 1024)
put(8, 1 << 32, size, lanes)
put(128, 1)
put(0, int.from_bytes(b"UVMDRING", "little"))
print("ready", flush=True)
for _ in sys.stdin:
    # PUNCH_HOLE | KEEP_SIZE of linux/falloc.h.
    assert libc.fallocate(memory, 3, ctypes.c_long(begin), ctypes.c_long(end - begin)) == 0
    print(os.fstat(memory).st_blocks * 512, flush=True)
"#;

fn state(recordings: &Recordings, program: &Program) -> State {
    recordings.snapshot(program.id()).unwrap().state().clone()
}

fn bytes(answer: &str) -> usize {
    answer.parse().unwrap()
}

#[test]
fn ring_with_holes_is_rejected_and_takes_no_memory() {
    if !is_permitted() {
        return;
    }
    for holes in [[0, 4096], [4096, 8192], [HEADER_BYTES, TOTAL_BYTES]] {
        let mut program = start_program(SPARSE, &[TOTAL_BYTES, LANES, holes[0], holes[1]]);
        let before = bytes(&program.answer());
        assert_eq!(before, TOTAL_BYTES - (holes[1] - holes[0]));
        let recordings = recordings();
        scan(&recordings, &BTreeMap::from([(program.id(), 1000)]));
        assert_eq!(state(&recordings, &program), State::Unreadable("its shared memory has holes".to_owned()));
        assert_eq!(bytes(&program.answer()), before);
    }
}

#[test]
fn reading_ends_once_the_ring_has_holes() {
    if !is_permitted() {
        return;
    }
    let mut program = start_program(SPARSE, &[TOTAL_BYTES, LANES, 0, TOTAL_BYTES]);
    let recordings = recordings();
    scan(&recordings, &BTreeMap::from([(program.id(), 1000)]));
    recordings.poll();
    assert_eq!(state(&recordings, &program), State::Recording);
    let losses = recordings.snapshot(program.id()).unwrap().losses();
    // A poll on a busy machine may end before the last lanes.
    let lost = losses.invalid + losses.unknown;
    assert!((16384..=16384 + 15 * 1024).contains(&lost), "{lost}");
    program.answer();
    recordings.poll();
    let reason = "its shared memory has holes".to_owned();
    assert_eq!(state(&recordings, &program), State::Unreadable(reason));
    assert_eq!(program.answer(), "0");
}

/// Whether this process has a file open.
fn has_open(inode: u64) -> bool {
    let is_it = |entry: io::Result<DirEntry>| {
        // Follows the link to its target. The file may have been closed since.
        entry.and_then(|entry| fs::metadata(entry.path())).is_ok_and(|file| file.ino() == inode)
    };
    fs::read_dir("/proc/self/fd").unwrap().any(is_it)
}

#[test]
fn ring_under_construction_is_read_once_it_has_a_header() {
    if !is_permitted() {
        return;
    }
    let (begin, _) = PROGRAM.split_once("put(0, int").unwrap();
    let late = format!(
        "{begin}print('ready', flush=True)\nsys.stdin.readline()\nprint(os.fstat(memory).st_ino, flush=True)\n\
         sys.stdin.readline()\nput(0, int.from_bytes(b'UVMDRING', 'little'))\nprint('made', flush=True)\n\
         sys.stdin.readline()\n"
    );
    let mut program = start_program(&late, &[TOTAL_BYTES, 1, LANES, Kind::Free as usize]);
    let inode = program.answer().parse().unwrap();
    let (recordings, running) = (recordings(), BTreeMap::from([(program.id(), 1000)]));
    recordings.scan(&running);
    repeat("an open ring", || recordings.poll(), || has_open(inode));
    recordings.poll();
    assert!(recordings.snapshot(program.id()).is_none());
    assert_eq!(program.answer(), "made");
    scan(&recordings, &running);
    assert_eq!(recordings.snapshot(program.id()).unwrap().state(), &State::Recording);
}
