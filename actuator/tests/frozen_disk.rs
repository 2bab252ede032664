//! Journal on a frozen file system, as if its disk no longer responded. Needs root, and loop
//! devices.
#![cfg(test)]

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use actuator::{Journal, JournalError, Workers};
use model::{
    Action, Actuator, Advice, Call, CallResult, DecisionId, GpuUuid, Interrupt, Order, Outcome, ProcessId, Step,
};
use sys::{fake::Machine, private};
use tempfile::TempDir;

const SOON: Duration = Duration::from_secs(20);
const LIVING: ProcessId = ProcessId { pid: 42, start_ticks: 7 };
const GPU: GpuUuid = GpuUuid([1; 16]);
const OTHER_GPU: GpuUuid = GpuUuid([2; 16]);

/// Separate file system, thawed and removed on drop.
struct FileSystem {
    folder: TempDir,
    is_frozen: bool,
}

impl FileSystem {
    /// `None` if it cannot be created, with a message.
    fn new() -> Option<Self> {
        let folder = TempDir::new().unwrap();
        let (image, root) = (folder.path().join("image"), folder.path().join("root"));
        fs::File::create(&image).unwrap().set_len(16 << 20).unwrap();
        fs::create_dir(&root).unwrap();
        let made = run("mkfs.ext4", &["-q", image.to_str().unwrap()])
            .and_then(|()| run("mount", &["-o", "loop", image.to_str().unwrap(), root.to_str().unwrap()]));
        match made {
            Ok(()) => Some(Self { folder, is_frozen: false }),
            Err(error) => {
                println!("skipped: no file system to freeze: {error}");
                None
            }
        }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn freeze(&mut self) {
        run("fsfreeze", &["--freeze", self.root().to_str().unwrap()]).unwrap();
        self.is_frozen = true;
    }

    fn thaw(&mut self) {
        if self.is_frozen {
            run("fsfreeze", &["--unfreeze", self.root().to_str().unwrap()]).unwrap();
            self.is_frozen = false;
        }
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        self.thaw();
        // Pending writers get a moment.
        let start = Instant::now();
        while run("umount", &[self.root().to_str().unwrap()]).is_err() && start.elapsed() < SOON {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let path = "/usr/sbin:/sbin:/usr/bin:/bin";
    let output = Command::new(program).args(arguments).env("PATH", path).output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{program}: {error}")),
    }
}

struct Executing;

impl Actuator for Executing {
    fn execute(&mut self, order: &Order, _interrupt: &dyn Interrupt) -> Outcome {
        let calls =
            order.steps.iter().map(|step| Call { step: *step, result: CallResult::Done, duration_ns: 0 }).collect();
        Outcome::new(order, calls)
    }
}

fn order(decision: u64, gpu: GpuUuid, action: Action) -> Order {
    let steps = vec![Step { begin: decision * 4096, end: (decision + 1) * 4096, action }];
    let is_rollback = matches!(action, Action::Withdraw(_));
    Order { decision: DecisionId(decision), process: LIVING, gpu, steps, is_rollback }
}

#[test]
fn frozen_file_system_prevents_advice_but_neither_withdrawals_nor_shutdown() {
    const READ: Advice = Advice::ReadDuplication;
    let Some(mut disk) = FileSystem::new() else { return };
    let stat = format!("42 (app) S {}7 {}\n", "0 ".repeat(18), "0 ".repeat(30));
    let machine = Machine::new().with("proc/sys/kernel/random/boot_id", "first\n").with("proc/42/stat", stat);
    let path = disk.root().join("advice.journal");
    let open = || Journal::open(&path, machine.roots.clone());
    let journal = open().unwrap();
    let mut workers = Workers::start(|_| Box::new(Executing), || false, Some(journal.clone()));
    let next = |workers: &Workers| {
        let outcome = workers.next_outcome(SOON).expect("it waits for the disk");
        (outcome.decision.0, outcome.calls[0].result.clone())
    };
    // Other processes may keep the disk busy.
    let begun = Instant::now();
    loop {
        workers.submit(order(1, GPU, Action::Advise(READ)));
        match next(&workers) {
            (1, CallResult::Done) => break,
            (1, CallResult::Failed(why)) if why.contains("was not written for") && begun.elapsed() < SOON => {}
            other => panic!("{other:?}"),
        }
    }

    disk.freeze();
    workers.submit(order(2, OTHER_GPU, Action::Advise(READ)));
    workers.submit(order(1, GPU, Action::Withdraw(READ)));
    let outcomes = BTreeMap::from([next(&workers), next(&workers)]);
    assert_eq!(outcomes[&1], CallResult::Done);
    assert!(matches!(&outcomes[&2], CallResult::Failed(why) if why.contains("was not written for")), "{outcomes:?}");
    // A writer may not have started by then: the processors may be busy.
    let refused = Instant::now();
    while journal.health().is_writable {
        assert!(refused.elapsed() < SOON, "the journal does not report the stuck disk");
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(journal.leftovers(), []);
    assert!(workers.stop(SOON).is_empty());
    drop(journal);
    assert!(matches!(open(), Err(JournalError::InUse(_))), "the lock is held while a write is pending");

    disk.thaw();
    let journal = once_free(open);
    assert_eq!(journal.leftovers(), []);
}

/// Journal, once its former user has written all.
fn once_free(open: impl Fn() -> Result<Journal, JournalError>) -> Journal {
    let begun = Instant::now();
    loop {
        match open() {
            Ok(journal) => return journal,
            Err(JournalError::InUse(_)) if begun.elapsed() < SOON => thread::sleep(Duration::from_millis(1)),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn advice_of_a_former_run_is_withdrawn_on_a_frozen_file_system() {
    const READ: Advice = Advice::ReadDuplication;
    let Some(mut disk) = FileSystem::new() else { return };
    let state_dir = disk.root().join("state");
    private::make_folder(&state_dir).unwrap();
    let stat = format!("42 (app) S {}7 {}\n", "0 ".repeat(18), "0 ".repeat(30));
    let machine = Machine::new().with("proc/sys/kernel/random/boot_id", "first\n").with("proc/42/stat", stat);
    let path = state_dir.join("advice.journal");
    let line = format!(
        "{{\"version\":1,\"boot\":\"first\",\"pid\":42,\"start_ticks\":7,\"gpu\":\"{GPU}\",\"begin\":4096,\"end\":8192,\"advice\":\"read_duplication\""
    );
    let line = format!("{line},\"crc32\":\"{:08x}\"}}\n", crc32fast::hash(line.as_bytes()));
    let open = || Journal::open(&path, machine.roots.clone());
    drop(open().unwrap());
    drop(once_free(open));
    fs::write(&path, &line).unwrap();
    let instance = state_dir.join("uvmd.lock");
    drop(private::lock(&instance).unwrap().unwrap());

    disk.freeze();
    private::make_folder(&state_dir).unwrap();
    let _instance = private::lock(&instance).unwrap().unwrap();
    let journal = open().unwrap();
    assert_eq!(journal.leftovers().len(), 1);
    let mut workers = Workers::start(|_| Box::new(Executing), || false, Some(journal.clone()));
    workers.submit(order(1, GPU, Action::Withdraw(READ)));
    let outcome = workers.next_outcome(SOON).expect("it waits for the disk");
    assert_eq!(outcome.calls[0].result, CallResult::Done);
    assert_eq!(journal.leftovers(), []);
    assert_eq!(fs::read_to_string(&path).unwrap(), line, "nothing was written");
    assert!(workers.stop(SOON).is_empty());
    disk.thaw();
    assert!(journal.flush(SOON));
    drop(journal);
    assert_eq!(once_free(open).leftovers(), []);
}
