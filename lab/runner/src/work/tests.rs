use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use gpu::swgpu::MAX_ACCESSES;

use super::{Kind as AccessKind, *};
use crate::{
    check::Checked,
    scenario::{Process, parse::parse},
};

/// Memory that is always coherent, unless a test corrupts a word of it.
struct Ram {
    memory: Vec<Vec<AtomicU64>>,
    /// Actions, in order.
    log: Mutex<Vec<String>>,
    kernels: Mutex<Vec<Kernel>>,
    marks: Mutex<Vec<String>>,
    /// Time, which passes only by sleeping.
    now: Mutex<Instant>,
}

const BASE: u64 = 1 << 30;

fn index(number: u64) -> usize {
    number.try_into().unwrap()
}

impl Ram {
    fn new(process: &Process) -> Self {
        let words = |bytes: u64| (0..bytes / 8).map(|_| AtomicU64::new(0)).collect();
        let memory = process.allocations.iter().map(|allocation| words(allocation.bytes)).collect();
        Self {
            memory,
            log: Mutex::default(),
            kernels: Mutex::default(),
            marks: Mutex::default(),
            now: Mutex::new(Instant::now()),
        }
    }

    fn log(&self, action: impl Into<String>) {
        self.log.lock().unwrap().push(action.into());
    }

    fn logged(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }
}

impl Machine for Ram {
    fn address(&self, allocation: usize) -> u64 {
        BASE + (allocation as u64) * (1 << 20)
    }
    fn cpu_read(&self, allocation: usize, word: usize) -> u64 {
        self.memory[allocation][word].load(Ordering::Relaxed)
    }
    fn cpu_write(&self, allocation: usize, word: usize, value: u64) {
        self.log(format!("cpu writes {}", word * 8));
        self.memory[allocation][word].store(value, Ordering::Relaxed);
    }
    fn cpu_add(&self, allocation: usize, word: usize, addend: u64) -> u64 {
        self.memory[allocation][word].fetch_add(addend, Ordering::Relaxed)
    }
    fn cpu_mark(&self, mark: &CpuMark) -> anyhow::Result<()> {
        let CpuMark { begins, kind, address, bytes } = mark;
        self.marks.lock().unwrap().push(format!("{kind:?} {} {bytes} {begins}", address - BASE));
        Ok(())
    }
    fn gpu_run(&self, kernel: &Kernel, accesses: &mut [GpuAccess]) -> anyhow::Result<()> {
        assert!(!accesses.is_empty() && accesses.len() <= MAX_ACCESSES);
        self.kernels.lock().unwrap().push(*kernel);
        for access in accesses {
            let offset = (access.va - BASE) & 0xf_ffff;
            let word = &self.memory[index((access.va - BASE) >> 20)][index(offset / 8)];
            match kernel.kind {
                AccessKind::Read => access.value = word.load(Ordering::Relaxed),
                AccessKind::Write => word.store(access.value, Ordering::Relaxed),
                AccessKind::Atomic => access.value = word.fetch_add(access.value, Ordering::Relaxed),
            }
            self.log(format!("gpu{} {:?} {offset}", kernel.gpu, kernel.kind));
        }
        Ok(())
    }
    fn call(&self, call: Call, address: u64, bytes: u64) -> anyhow::Result<()> {
        self.log(format!("{call:?} {:#x} {bytes}", address - BASE));
        Ok(())
    }
    fn device_alloc(&self, name: &str, gpu: u32, bytes: u64) -> anyhow::Result<()> {
        self.log(format!("alloc {name} gpu{gpu} {bytes}"));
        Ok(())
    }
    fn device_free(&self, name: &str) -> anyhow::Result<()> {
        self.log(format!("free {name}"));
        Ok(())
    }
    fn kill(&self) -> anyhow::Result<()> {
        self.log("killed");
        Ok(())
    }
    fn now(&self) -> Instant {
        *self.now.lock().unwrap()
    }
    fn pass(&self, time: Duration) {
        *self.now.lock().unwrap() += time;
    }
}

/// Process with allocations `a` of 8 KiB and `b` of 1 MiB, two GPUs, and these steps.
fn process(steps: &str) -> Process {
    let text = format!(
        "name = \"s\"\ngpus = 2\n[[process]]\nname = \"p\"\n\
         alloc = [{{ name = \"a\", kib = 8 }}, {{ name = \"b\", mib = 1 }}]\nsteps = [{steps}]\n"
    );
    parse("test.toml", &text).unwrap().processes.remove(0)
}

/// Result of running steps.
struct Outcome {
    flow: Flow,
    ram: Ram,
    tally: Tally,
    first_mismatch: Option<String>,
}

/// Runs these steps, with `between` after the first.
fn run_with(steps: &str, stopped: bool, between: impl FnOnce(&Ram)) -> Outcome {
    let process = process(steps);
    let (ram, tally, stop) = (Ram::new(&process), Tally::default(), AtomicBool::new(stopped));
    let memory = Memory::new(&process, 1, &tally, &stop).unwrap();
    let work = Work::new(&ram, &memory);
    let (first, rest) = process.steps.split_at(1);
    let mut flow = run_list(first, &work).unwrap();
    between(&ram);
    if flow == Flow::Done {
        flow = run_list(rest, &work).unwrap();
    }
    work.verify_everything().unwrap();
    let first_mismatch = memory.first_mismatch().map(|mismatch| mismatch.to_string());
    Outcome { flow, ram, tally, first_mismatch }
}

fn run(steps: &str) -> Outcome {
    run_with(steps, false, |_| ())
}

#[test]
fn a_write_of_one_processor_is_read_by_the_other() {
    let outcome = run("{ cpu_write = \"a\", stride = 8 }, { gpu_read = \"a\", stride = 8 }, \
         { repeat = 2, steps = [{ gpu_write = \"a\", order = \"random\" }, { cpu_read = \"a\", stride = 64 }] }");
    assert_eq!(outcome.flow, Flow::Done);
    let checked = Checked::of(&outcome.tally);
    assert_eq!((checked.words_read, checked.verified_bytes, checked.mismatches), (1024 + 2 * 128, 8192 + (1 << 20), 0));
}

#[test]
fn each_write_of_a_word_has_a_fresh_value() {
    let mut before = Vec::new();
    let outcome = run_with("{ gpu_write = \"a\" }, { gpu_write = \"a\" }", false, |ram| {
        before = ram.memory[0].iter().map(|word| word.load(Ordering::Relaxed)).collect();
    });
    let changed =
        outcome.ram.memory[0].iter().zip(before).filter(|(now, before)| now.load(Ordering::Relaxed) != *before);
    assert_eq!(changed.count(), 8, "one word a KiB, each with another value than before");
}

#[test]
fn a_word_that_changed_by_itself_is_found_by_every_kind_of_read() {
    for (step, reader) in [
        ("{ gpu_read = \"a\" }", "gpu"),
        ("{ gpu_atomic = \"a\" }", "gpu"),
        ("{ cpu_read = \"a\" }", "cpu"),
        ("{ cpu_atomic = \"a\" }", "cpu"),
        ("{ verify = \"a\" }", "cpu"),
    ] {
        let outcome = run_with(&format!("{{ cpu_write = \"a\" }}, {step}"), false, |ram| {
            ram.memory[0][128].store(0xbad, Ordering::Relaxed);
        });
        let first = outcome.first_mismatch.unwrap();
        assert!(first.starts_with("a+1024 (0x40000400) held 0xbad and not 0x"), "{first}");
        assert!(first.ends_with(&format!("when the {reader} read it")), "{step}: {first}");
    }
}

#[test]
fn cpu_accesses_are_marked_at_begin_and_end() {
    let outcome = run("{ cpu_write = \"a\", offset = 4096 }, { gpu_read = \"a\" }, { verify = \"a\" }");
    let marks = outcome.ram.marks.lock().unwrap().clone();
    let expected = ["Write 4096 4096 true", "Write 4096 4096 false", "Read 0 8192 true", "Read 0 8192 false"];
    assert_eq!(marks[..4], expected, "the rest is the verification in the end");
}

#[test]
fn memory_that_was_never_written_must_hold_zero() {
    let outcome = run_with("{ gpu_read = \"a\" }", false, |ram| ram.memory[1][77].store(1, Ordering::Relaxed));
    assert!(outcome.first_mismatch.unwrap().starts_with("b+616 "));
}

#[test]
fn atomics_add_up_over_processors_gpus_and_threads() {
    let atomics = "{ gpu_atomic = \"b\", stride = 8 }, { cpu_atomic = \"b\", stride = 8 }";
    let outcome = run(&format!(
        "{{ cpu_write = \"b\" }}, {{ parallel = [[{atomics}], [{{ gpu_atomic = \"b\", stride = 8, gpu = 1 }}], [{atomics}]] }}, \
         {{ gpu_read = \"b\", stride = 8 }}"
    ));
    assert_eq!(outcome.first_mismatch, None);
    assert_ne!(outcome.ram.memory[1][1].load(Ordering::Relaxed), 0);
}

#[test]
fn an_addition_that_is_lost_is_found() {
    let outcome = run_with("{ gpu_atomic = \"a\" }, { gpu_atomic = \"a\" }", false, |ram| {
        ram.memory[0][0].store(0, Ordering::Relaxed);
    });
    assert!(outcome.first_mismatch.unwrap().starts_with("a+0 "));
}

#[test]
fn an_access_touches_the_words_of_its_part_in_its_order() {
    let outcome = run("{ gpu_write = \"a\", offset = \"4 KiB\", length = 4096, stride = 2048, gpu = 1 }, \
                   { cpu_write = \"a\", length = 16, stride = 8 }");
    assert_eq!(outcome.ram.logged(), ["gpu1 Write 4096", "gpu1 Write 6144", "cpu writes 0", "cpu writes 8"]);
}

#[test]
fn a_long_pass_of_the_gpu_is_cut_into_parts() {
    let outcome = run("{ gpu_write = \"b\", stride = 8 }, { gpu_read = \"b\", stride = 8, order = \"random\" }");
    assert_eq!(outcome.ram.kernels.lock().unwrap().len(), 4, "2 passes of 131,072 accesses");
    assert_eq!((Checked::of(&outcome.tally).words_read, Checked::of(&outcome.tally).mismatches), (131_072, 0));
}

#[test]
fn an_access_rate_sets_the_bytes_of_each_access() {
    let outcome = run(
        "{ gpu_read = \"b\" }, { gpu_read = \"b\", access_rate = 128 }, { gpu_read = \"b\", stride = 8, access_rate = 0.5 }",
    );
    let kernels = outcome.ram.kernels.lock().unwrap();
    // A sector an access; 128 sectors for the 4 words of a page; half a sector for its 512 words.
    let millibytes: Vec<u64> = kernels.iter().map(|kernel| kernel.access_millibytes).collect();
    assert_eq!(millibytes, [32_000, 32 * 32_000, 31, 31]);
}

#[test]
fn calls_of_the_driver_are_made_and_counted() {
    let outcome = run(
        "{ prefetch = \"b\", to = \"gpu1\", offset = \"64 KiB\" }, { advise = \"a\", preferred_location = \"cpu\" }, \
         { advise = \"a\", preferred_location = false }, { advise = \"b\", accessed_by = \"gpu0\" }, \
         { advise = \"b\", unset_accessed_by = \"gpu0\" }, { advise = \"a\", read_duplication = true, length = 4096 }, \
         { advise = \"a\", read_duplication = false }, { prefetch = \"a\", to = \"cpu\" }",
    );
    let expected = [
        "Migrate { to: Gpu(1) } 0x110000 983040",
        "SetPreferredLocation { to: Cpu } 0x0 8192",
        "UnsetPreferredLocation 0x0 8192",
        "SetAccessedBy { by: Gpu(0) } 0x100000 1048576",
        "UnsetAccessedBy { by: Gpu(0) } 0x100000 1048576",
        "EnableReadDuplication 0x0 4096",
        "DisableReadDuplication 0x0 8192",
        "Migrate { to: Cpu } 0x0 8192",
    ];
    assert_eq!(outcome.ram.logged(), expected);
    let sizes = [(2, 983_040 + 8192), (1, 8192), (1, 8192), (1, 1 << 20), (1, 1 << 20), (1, 4096), (1, 8192)];
    assert_eq!(outcome.tally.calls(), sizes);
}

#[test]
fn device_memory_is_allocated_and_freed() {
    let outcome = run("{ device_alloc = \"weights\", mib = 2, gpu = 1 }, { device_free = \"weights\" }");
    assert_eq!(outcome.ram.logged(), ["alloc weights gpu1 2097152", "free weights"]);
}

#[test]
fn steps_are_repeated_until_their_time_is_over() {
    let outcome = run("{ repeat_for_ms = 30, steps = [{ sleep_ms = 1 }, { gpu_write = \"a\", stride = 8192 }] }");
    assert_eq!(outcome.ram.logged().len(), 30);
    // A round that has begun when the time is over completes.
    let outcome = run("{ repeat_for_ms = 30, steps = [{ sleep_ms = 20 }, { gpu_write = \"a\", stride = 8192 }] }");
    assert_eq!(outcome.ram.logged().len(), 2);
    assert!(run("{ repeat_for_ms = 0, steps = [{ gpu_write = \"a\" }] }").ram.logged().is_empty());
}

#[test]
fn exit_ends_all_enclosing_repeats_and_threads() {
    let outcome = run(
        "{ repeat = 5, steps = [{ repeat = 5, steps = [{ cpu_write = \"a\" }, { exit = 3 }] }] }, { cpu_write = \"b\" }",
    );
    assert_eq!((outcome.flow, outcome.ram.logged().len()), (Flow::Exit { code: 3 }, 8));
    let outcome = run("{ parallel = [[{ cpu_write = \"a\" }], [{ exit = 4 }]] }, { cpu_write = \"b\" }");
    assert_eq!(
        (outcome.flow, outcome.ram.logged().len()),
        (Flow::Exit { code: 4 }, 8),
        "the other thread is waited for"
    );
}

#[test]
fn kill_kills_and_nothing_more_is_done() {
    let outcome = run("{ kill = true }");
    assert_eq!((outcome.flow, outcome.ram.logged()), (Flow::Stopped, vec!["killed".to_owned()]));
}

#[test]
fn a_stop_cuts_steps_short_and_what_was_written_still_verifies() {
    let steps = "{ repeat = 4000000000, steps = [{ gpu_write = \"b\", stride = 8 }] }, { cpu_write = \"a\" }";
    let outcome = run_with(steps, true, |_| ());
    assert_eq!((outcome.flow, outcome.ram.logged().len(), outcome.first_mismatch), (Flow::Stopped, MAX_ACCESSES, None));
}

#[test]
fn a_stop_wakes_a_sleeper() {
    assert_eq!(run_with("{ sleep_ms = 86400000 }", true, |_| ()).flow, Flow::Stopped);
}
