use std::{env, fs, path::Path, process::Command};

use super::*;

const CARD: GpuUuid = GpuUuid([3; 16]);
const ANOTHER: GpuUuid = GpuUuid([5; 16]);

/// Fake library, controlled by the test.
struct StandIn {
    folder: tempfile::TempDir,
    nvml: Nvml,
    start: Instant,
}

fn stand_in() -> StandIn {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join(LIBRARY);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/nvml/libnvidia-ml.c");
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut command = Command::new(compiler);
    command.args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]);
    command.arg(format!("-DFOLDER=\"{}\"", folder.path().display())).arg("-o").arg(&library).arg(source);
    let built = command.output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    StandIn { nvml: Nvml::of(library.as_os_str()), folder, start: Instant::now() }
}

impl StandIn {
    fn set(&self, name: &str) {
        fs::write(self.folder.path().join(name), "").unwrap();
    }

    fn unset(&self, name: &str) {
        fs::remove_file(self.folder.path().join(name)).unwrap();
    }

    /// Number of calls of a function.
    fn calls(&self, function: &str) -> usize {
        let calls = fs::read_to_string(self.folder.path().join("calls")).unwrap_or_default();
        calls.lines().filter(|line| *line == function).count()
    }

    fn is_busy(&self) -> bool {
        lock(&self.nvml.shared).is_busy
    }

    /// Queries, and waits for the reply.
    fn ask(&mut self, gpus: &[GpuUuid], after: Duration) {
        self.nvml.ask(gpus.iter().copied(), self.start + after);
        let deadline = Instant::now() + Duration::from_mins(1);
        while self.is_busy() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!self.is_busy());
    }

    fn facts(&self, gpu: GpuUuid) -> Option<Facts> {
        self.nvml.facts(gpu, Instant::now())
    }
}

#[test]
fn gpu_in_use_has_the_facts_of_the_library() {
    let mut on = stand_in();
    on.ask(&[CARD, ANOTHER], Duration::ZERO);
    let expected = Facts {
        index: Some(3),
        name: Some("NVIDIA H200".to_owned()),
        pci_address: Some("0000:ab:00.0".to_owned()),
        memory_bytes: Some(1000),
        memory_used_bytes: Some(400),
        link_bytes_per_second: Some(31_507_692_304),
    };
    assert_eq!((on.facts(CARD), on.facts(ANOTHER)), (Some(expected), None));
}

#[test]
fn library_is_queried_every_five_seconds_and_opened_once() {
    let mut on = stand_in();
    for seconds in [0, 1, 4, 5, 6, 10] {
        on.ask(&[CARD], Duration::from_secs(seconds));
    }
    assert_eq!((on.calls("init"), on.calls("handle"), on.calls("shutdown")), (1, 3, 0));
}

#[test]
fn library_is_open_only_while_a_gpu_is_in_use() {
    let mut on = stand_in();
    on.ask(&[], Duration::ZERO);
    assert_eq!(on.calls("init"), 0);
    on.ask(&[CARD], Duration::from_secs(1));
    on.ask(&[], Duration::from_secs(2));
    on.ask(&[], Duration::from_mins(1));
    assert_eq!((on.calls("init"), on.calls("shutdown")), (1, 1));
    on.ask(&[CARD], Duration::from_secs(61));
    assert_eq!(on.calls("init"), 2);
}

#[test]
fn hung_library_blocks_no_caller_and_gets_no_further_query() {
    let mut on = stand_in();
    on.ask(&[CARD], Duration::ZERO);
    on.set("hangs");
    on.nvml.ask([CARD], on.start + EVERY);
    for seconds in [20, 40, 60, 3600] {
        on.nvml.ask([CARD], on.start + Duration::from_secs(seconds));
    }
    assert!(on.is_busy() && on.nvml.warned);
    assert!(on.calls("handle") <= 2);
    // Constant facts are still known; the memory in use is not.
    let late = on.nvml.facts(CARD, Instant::now() + DEADLINE + Duration::from_secs(1)).unwrap();
    assert_eq!((late.memory_bytes, late.memory_used_bytes), (Some(1000), None));

    on.unset("hangs");
    on.ask(&[CARD], Duration::from_secs(3700));
    assert_eq!(on.facts(CARD).unwrap().memory_used_bytes, Some(400));
}

#[test]
fn failed_library_is_opened_again_after_a_pause() {
    let mut on = stand_in();
    on.set("not-loaded");
    for seconds in [0, 5, 59, 60] {
        on.ask(&[CARD], Duration::from_secs(seconds));
    }
    assert_eq!((on.calls("init"), on.facts(CARD)), (2, None));
    on.unset("not-loaded");
    on.ask(&[CARD], Duration::from_mins(2));
    assert!(on.facts(CARD).is_some());

    on.set("lost");
    on.ask(&[CARD], Duration::from_mins(3));
    on.unset("lost");
    on.ask(&[CARD], Duration::from_mins(4));
    assert_eq!((on.calls("init"), on.calls("shutdown")), (4, 1));
}

#[test]
fn gpu_without_memory_information_has_its_other_facts() {
    let mut on = stand_in();
    on.set("no-memory");
    on.ask(&[CARD], Duration::ZERO);
    let facts = on.facts(CARD).unwrap();
    assert_eq!((facts.index, facts.memory_bytes, facts.memory_used_bytes), (Some(3), None, None));
}

#[test]
fn missing_library_yields_no_facts() {
    let folder = tempfile::tempdir().unwrap();
    let nvml = Nvml::of(folder.path().join("none.so").as_os_str());
    let mut on = StandIn { folder, nvml, start: Instant::now() };
    on.ask(&[CARD], Duration::ZERO);
    assert_eq!(on.facts(CARD), None);
    assert!(lock(&on.nvml.shared).error.is_some());
}

#[test]
fn pci_address_has_the_kernels_number_of_digits() {
    let addresses = ["00000000:17:00.0", "00010000:3B:00.0", "0000:17:00.0", ""].map(pci_address);
    assert_eq!(addresses, ["0000:17:00.0", "10000:3b:00.0", "0000:17:00.0", ""]);
}
