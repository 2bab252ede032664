//! Every target with its corpus, and with a fixed number of mutations of it. `scripts/fuzz`
//! searches by coverage without a limit; this takes seconds and is the same in every run.
#![expect(
    clippy::panic,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a test stops at what it cannot do, and says what"
)]

use std::{
    collections::HashMap,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process,
    sync::{
        LazyLock, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use fuzz::{TARGETS, Target, mutate::Mutator};

/// Mutations per target, over all of its seeds.
const MUTATIONS: usize = 2000;
/// Mutations of targets that have a service, a socket, or a large memory with every input.
const FEWER_MUTATIONS: [(&str, usize); 4] = [("http", 300), ("pages", 500), ("plan_memory", 300), ("plans", 300)];
/// Time limit of an input, after which it counts as hung even on a busy machine.
const INPUT_MAX: Duration = Duration::from_mins(1);

fn corpus(target: &Target) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target.name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Current input of a target.
struct Running {
    target: &'static Target,
    what: String,
    input: Vec<u8>,
    since: Instant,
}

static RUNNING: LazyLock<Mutex<HashMap<ThreadId, Running>>> = LazyLock::new(Mutex::default);

impl Running {
    /// Reports it, with a file that contains the input.
    fn report(&self, how: &str) {
        let Self { target: Target { name, .. }, what, input, .. } = self;
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", what.replace(' ', "-")));
        fs::write(&path, input).unwrap();
        eprintln!("{name}: {what} {how}: scripts/fuzz {name} {}", path.display());
    }
}

/// Ends the process if an input takes too long: nothing else ends one that hangs.
fn watch() {
    loop {
        thread::sleep(Duration::from_secs(1));
        let running = RUNNING.lock().unwrap();
        if let Some(hung) = running.values().find(|running| running.since.elapsed() > INPUT_MAX) {
            hung.report("takes too long");
            process::exit(1);
        }
    }
}

/// Whether the target's properties hold for an input.
fn holds(target: &'static Target, input: &[u8], what: &str) -> bool {
    let this = thread::current().id();
    let running = Running { target, what: what.to_owned(), input: input.to_owned(), since: Instant::now() };
    RUNNING.lock().unwrap().insert(this, running);
    let result = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    let ran = RUNNING.lock().unwrap().remove(&this).unwrap();
    if result.is_err() {
        ran.report("fails");
    }
    result.is_ok()
}

fn failures(target: &'static Target) -> usize {
    let seeds = corpus(target);
    assert!(!seeds.is_empty(), "{} has no seeds", target.name);
    let named = seeds.iter().map(|(path, seed)| {
        let name = path.file_name().unwrap().to_string_lossy();
        holds(target, seed, &format!("seed {name}"))
    });
    let mut failures = named.filter(|holds| !holds).count();
    let mut mutator = Mutator::new(seeds.into_iter().map(|(_, seed)| seed).collect());
    let fewer = FEWER_MUTATIONS.into_iter().find(|(name, _)| *name == target.name);
    for number in 0..fewer.map_or(MUTATIONS, |(_, mutations)| mutations) {
        let input = mutator.next();
        failures += usize::from(!holds(target, &input, &format!("mutation {number}")));
        if failures >= 3 {
            break;
        }
    }
    failures
}

#[test]
fn properties_hold_for_the_corpus_and_its_mutations() {
    thread::spawn(watch);
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from).min(4) {
            scope.spawn(|| {
                while let Some(target) = TARGETS.get(next.fetch_add(1, Ordering::Relaxed)) {
                    failed.fetch_add(failures(target), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(failed.into_inner(), 0, "the inputs are named above");
}

/// The corpus has a folder for each target, and no others.
#[test]
fn every_folder_of_the_corpus_has_a_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let mut bytes = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let target = fuzz::target(&name).unwrap_or_else(|| panic!("there is no target {name}"));
        bytes += corpus(target).iter().map(|(_, seed)| seed.len()).sum::<usize>();
    }
    assert!(bytes < 300 << 10, "the corpus is for people, too: {bytes} bytes are too many");
}
