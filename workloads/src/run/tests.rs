use std::convert::Infallible;

use super::*;
use crate::{catalog::WORKLOADS, residency::Prediction};

/// Machine on plain memory. GPU writes from a given word on are lost.
struct PlainMemory {
    words: Vec<u64>,
    lost_from: u64,
    calls: Vec<String>,
}

impl PlainMemory {
    fn new(pages: u64) -> Self {
        Self { words: vec![0; usize::try_from(pages * PAGE_WORDS).unwrap()], lost_from: u64::MAX, calls: Vec::new() }
    }

    fn at(&self, at: u64) -> u64 {
        self.words[usize::try_from(at).unwrap()]
    }

    fn set(&mut self, at: u64, value: u64) {
        self.words[usize::try_from(at).unwrap()] = value;
    }

    fn weigh(&self, words: impl Iterator<Item = u64>) -> (u64, Duration) {
        let sum = words.fold(0u64, |sum, at| sum.wrapping_add(self.at(at).wrapping_mul(2 * at + 1)));
        (sum, Duration::from_millis(5))
    }
}

impl Machine for PlainMemory {
    type Error = Infallible;

    fn words(&self) -> u64 {
        self.words.len() as u64
    }
    fn cpu_read(&self, at: u64) -> u64 {
        self.at(at)
    }
    fn cpu_write(&mut self, at: u64, value: u64) {
        self.set(at, value);
    }
    fn gpu_write(&mut self, seed: u64) -> Result<Duration, Infallible> {
        for at in 0..self.words().min(self.lost_from) {
            self.set(at, Contents::written(seed).word(at));
        }
        Ok(Duration::from_millis(5))
    }
    fn gpu_increment(&mut self) -> Result<Duration, Infallible> {
        for at in (0..self.words().min(self.lost_from)).step_by(512) {
            self.set(at, self.at(at).wrapping_add(1));
        }
        Ok(Duration::from_millis(5))
    }
    fn gpu_weigh(&mut self, stride: u64) -> Result<(u64, Duration), Infallible> {
        Ok(self.weigh((0..self.words()).step_by(usize::try_from(stride).unwrap())))
    }
    fn gpu_weigh_shuffled(&mut self, shuffle: Shuffle) -> Result<(u64, Duration), Infallible> {
        Ok(self.weigh((0..=shuffle.mask).map(|page| page * PAGE_WORDS)))
    }
    fn prefetch(&mut self, to: Processor) -> Result<Duration, Infallible> {
        self.calls.push(format!("prefetch to {to}"));
        Ok(Duration::from_millis(5))
    }
    fn advise(&mut self, advice: Advice) -> Result<(), Infallible> {
        self.calls.push(format!("{advice:?}"));
        Ok(())
    }
}

fn run_all(machine: PlainMemory, phases: Vec<Phase>) -> Result<Vec<PhaseReport>, RunError<Infallible>> {
    let mut run = Run::new(machine, 1);
    phases.into_iter().map(|phase| run.phase(phase)).collect()
}

#[test]
fn every_workload_runs_and_verifies_on_memory_that_works() {
    for workload in WORKLOADS {
        let done = run_all(PlainMemory::new(64), workload.phases(3)).unwrap();
        assert_eq!(done.len(), workload.phases(3).len(), "{}", workload.name);
    }
}

#[test]
fn the_cpu_detects_the_first_word_that_the_gpu_lost() {
    let machine = PlainMemory { lost_from: 1000, ..PlainMemory::new(4) };
    let error = run_all(machine, vec![Phase::Write(Gpu), Phase::CpuRead]).unwrap_err();
    assert!(matches!(error, RunError::WrongWord { word: 1000, found: 0, .. }), "{error}");
}

#[test]
fn the_gpu_detects_lost_words_when_it_reads() {
    let machine = PlainMemory { lost_from: 1000, ..PlainMemory::new(4) };
    let error = run_all(machine, vec![Phase::Write(Gpu), Phase::GpuRead(Order::Sequential)]).unwrap_err();
    assert!(error.to_string().starts_with("gpu-read: the GPU's weighed sum is"), "{error}");
}

#[test]
fn an_old_pattern_does_not_pass_for_the_one_written_last() {
    let machine = PlainMemory { lost_from: 0, ..PlainMemory::new(4) };
    let phases = vec![Phase::Write(Cpu), Phase::Write(Gpu), Phase::CpuRead];
    assert!(run_all(machine, phases).is_err());
}

#[test]
fn a_size_that_cannot_be_shuffled_is_an_error_and_not_a_wrong_sum() {
    let error = run_all(PlainMemory::new(3), vec![Phase::Write(Cpu), Phase::GpuRead(Order::Random)]).unwrap_err();
    assert_eq!(error.to_string(), "3 pages cannot be shuffled: the size must be a power of two");
}

#[test]
fn a_phase_report_has_the_accesses_and_the_predicted_cost() {
    let done = run_all(PlainMemory::new(32), vec![Phase::Write(Cpu), Phase::GpuRead(Order::Strided)]).unwrap();
    let bytes = 32 * 4096;
    assert_eq!((done[0].written_bytes, done[0].read_bytes, done[0].pages_touched), (bytes, 0, 32));
    assert_eq!((done[1].written_bytes, done[1].read_bytes, done[1].pages_touched), (0, 16, 2));
    assert_eq!(done[1].predicted, Prediction { bytes_htod: bytes, bytes_dtoh: 0, gpu_faults: true });
    assert_eq!((done[1].toucher, done[1].elapsed_ms.to_bits()), (Some(Gpu), 5f64.to_bits()));
}
