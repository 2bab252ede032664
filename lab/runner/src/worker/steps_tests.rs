use super::*;
use crate::scenario::parse::parse;

/// Memory that is always coherent, unless a test breaks a word of it.
struct Ram {
    memory: Vec<Vec<u64>>,
    /// What processors did, in order: the reader or writer, and the offset in bytes.
    accesses: Vec<(&'static str, u64)>,
    gpu_runs: usize,
}

const BASE: u64 = 1 << 30;

fn index(number: u64) -> usize {
    number.try_into().unwrap()
}

impl Machine for Ram {
    fn address(&self, allocation: usize) -> u64 {
        BASE + (allocation as u64) * (1 << 20)
    }
    fn cpu_read(&self, allocation: usize, word: usize) -> u64 {
        self.memory[allocation][word]
    }
    fn cpu_write(&mut self, allocation: usize, word: usize, value: u64) {
        self.accesses.push(("cpu writes", word as u64 * 8));
        self.memory[allocation][word] = value;
    }
    fn gpu_run(&mut self, kind: Kind, _window: u32, accesses: &mut [GpuAccess]) -> anyhow::Result<()> {
        assert!(!accesses.is_empty() && accesses.len() <= MAX_ACCESSES);
        self.gpu_runs += 1;
        for access in accesses {
            let offset = (access.va - BASE) & 0xf_ffff;
            let word = &mut self.memory[index((access.va - BASE) >> 20)][index(offset / 8)];
            match kind {
                Kind::Read => access.value = *word,
                Kind::Write => *word = access.value,
            }
            self.accesses.push((if kind == Kind::Read { "gpu reads" } else { "gpu writes" }, offset));
        }
        Ok(())
    }
}

/// A process with allocations `a` of 8 KiB and `b` of 1 MiB, and these steps.
fn process(steps: &str) -> Process {
    let text = format!(
        "name = \"s\"\n[[process]]\nname = \"p\"\n\
         alloc = [{{ name = \"a\", kib = 8 }}, {{ name = \"b\", mib = 1 }}]\nsteps = [{steps}]\n"
    );
    parse("test.toml", &text).unwrap().processes.remove(0)
}

fn executor<'a>(process: &'a Process, stop: &'a AtomicBool) -> Executor<'a, Ram> {
    let memory = process.allocations.iter().map(|allocation| vec![0; index(allocation.bytes / 8)]).collect();
    Executor::new(Ram { memory, accesses: Vec::new(), gpu_runs: 0 }, process, 1, stop).unwrap()
}

#[test]
fn what_one_processor_writes_the_other_reads_back() {
    let stop = AtomicBool::new(false);
    let process = process(
        "{ cpu_write = \"a\", stride = 8 }, { gpu_read = \"a\", stride = 8 }, \
         { repeat = 2, steps = [{ gpu_write = \"a\", order = \"random\" }, { cpu_read = \"a\", stride = 64 }] }",
    );
    let mut executor = executor(&process, &stop);
    assert_eq!(executor.run(&process.steps).unwrap(), Flow::Done);
    executor.verify_everything();
    assert_eq!(executor.checked().words_read, 1024 + 2 * 128);
    assert_eq!((executor.checked().verified_bytes, executor.checked().mismatches), (8192 + (1 << 20), 0));
}

#[test]
fn each_write_of_a_word_has_a_fresh_value() {
    let stop = AtomicBool::new(false);
    let process = process("{ gpu_write = \"a\" }");
    let mut executor = executor(&process, &stop);
    executor.run(&process.steps).unwrap();
    let before = executor.machine().memory[0].clone();
    executor.run(&process.steps).unwrap();
    let changed = executor.machine().memory[0].iter().zip(before).filter(|(now, before)| **now != *before).count();
    assert_eq!(changed, 8, "one word a KiB, each with another value than before");
}

#[test]
fn a_word_that_changed_by_itself_is_found_by_every_kind_of_read() {
    for (step, reader) in
        [("{ gpu_read = \"a\" }", "gpu"), ("{ cpu_read = \"a\" }", "cpu"), ("{ verify = \"a\" }", "cpu")]
    {
        let stop = AtomicBool::new(false);
        let process = process(&format!("{{ cpu_write = \"a\" }}, {step}"));
        let mut executor = executor(&process, &stop);
        executor.run(&process.steps[..1]).unwrap();
        let right = executor.machine.memory[0][128];
        executor.machine.memory[0][128] = 0xbad;
        executor.run(&process.steps[1..]).unwrap();
        let expected = Mismatch {
            allocation: "a".to_owned(),
            offset_bytes: 1024,
            address: format!("{:#x}", BASE + 1024),
            reader: reader.to_owned(),
            expected: format!("{right:#x}"),
            found: "0xbad".to_owned(),
        };
        assert_eq!(executor.checked().first_mismatch.as_ref(), Some(&expected), "{step}");
        assert_eq!(executor.checked().mismatches, 1, "{step}");
    }
}

#[test]
fn memory_that_was_never_written_must_hold_zero() {
    let stop = AtomicBool::new(false);
    let process = process("{ gpu_read = \"a\" }");
    let mut executor = executor(&process, &stop);
    executor.machine.memory[1][77] = 1;
    executor.run(&process.steps).unwrap();
    assert_eq!(executor.checked().mismatches, 0);
    executor.verify_everything();
    assert_eq!(executor.checked().first_mismatch.as_ref().unwrap().offset_bytes, 77 * 8);
}

#[test]
fn an_access_touches_the_words_of_its_part_in_its_order() {
    let stop = AtomicBool::new(false);
    let process = process(
        "{ gpu_write = \"a\", offset = \"4 KiB\", length = 4096, stride = 2048 }, { cpu_write = \"a\", length = 16, stride = 8 }",
    );
    let mut executor = executor(&process, &stop);
    executor.run(&process.steps).unwrap();
    let expected = [("gpu writes", 4096), ("gpu writes", 6144), ("cpu writes", 0), ("cpu writes", 8)];
    assert_eq!(executor.machine().accesses, expected);
}

#[test]
fn a_long_pass_of_the_gpu_is_cut_into_parts() {
    let stop = AtomicBool::new(false);
    let process = process("{ gpu_write = \"b\", stride = 8 }, { gpu_read = \"b\", stride = 8, order = \"random\" }");
    let mut executor = executor(&process, &stop);
    executor.run(&process.steps).unwrap();
    assert_eq!(executor.machine().gpu_runs, 4, "2 passes of 131,072 accesses");
    assert_eq!((executor.checked().words_read, executor.checked().mismatches), (131_072, 0));
}

#[test]
fn exit_ends_all_enclosing_repeats() {
    let stop = AtomicBool::new(false);
    let process = process(
        "{ repeat = 5, steps = [{ repeat = 5, steps = [{ cpu_write = \"a\" }, { exit = 3 }] }] }, { cpu_write = \"b\" }",
    );
    let mut executor = executor(&process, &stop);
    assert_eq!(executor.run(&process.steps).unwrap(), Flow::Exit { code: 3 });
    assert_eq!(executor.machine().accesses.len(), 8);
}

#[test]
fn a_stop_cuts_steps_short_and_what_was_written_still_verifies() {
    let stop = AtomicBool::new(true);
    let process =
        process("{ repeat = 4000000000, steps = [{ gpu_write = \"b\", stride = 8 }] }, { cpu_write = \"a\" }");
    let mut executor = executor(&process, &stop);
    assert_eq!(executor.run(&process.steps).unwrap(), Flow::Stopped);
    executor.verify_everything();
    assert_eq!((executor.machine().accesses.len(), executor.checked().mismatches), (MAX_ACCESSES, 0));
}

#[test]
fn a_stop_wakes_a_sleeper() {
    let stop = AtomicBool::new(true);
    let process = process("{ sleep_ms = 86400000 }");
    assert_eq!(executor(&process, &stop).run(&process.steps).unwrap(), Flow::Stopped);
}
