//! Importers on thousands of damaged traces: each returns an error or a trace, never panics, and
//! allocates no more memory than a multiple of the text. The file has a single test, as the
//! allocator counts for the whole process.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a failed step ends the test")]

use std::{
    alloc::System,
    path::{Path, PathBuf},
};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use trace::{Iteration, OpStream};
use trace_sources::import::{g10, kineto, minimalloc, singa};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const TEXTS_PER_SAMPLE: u32 = 4000;
/// Maximum of bytes allocated by an import for buffers.
const FIXED_BYTES: usize = 64 << 10;
/// Maximum of bytes allocated per byte of text, in total. A growing vector counts with all
/// its former buffers.
const BYTES_PER_TEXT_BYTE: usize = 200;

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples").join(name)
}

/// Deterministic pseudo-random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % end.max(1)
    }
}

/// Damages a text: flipped bits, truncation, lost and repeated ranges, numbers at limits, stray
/// characters, swapped lines.
fn damage(text: &mut Vec<u8>, random: &mut Random) {
    const NUMBERS: [&str; 9] =
        ["0", "1", "-1", "4294967295", "4294967296", "18446744073709551615", "18446744073709551616", "1e308", "0.1"];
    const WORDS: [&str; 8] = ["\n", ",", "\0", "\"", "{", "[", "[[[[[[[[", "\u{fffd}"];
    if text.is_empty() {
        return;
    }
    let (at, other) = (random.below(text.len()), random.below(text.len()));
    let (from, to) = (at.min(other), at.max(other));
    match random.below(8) {
        0 => text[at] ^= 1 << random.below(8),
        1 => text.truncate(at),
        2 => drop(text.drain(from..to.min(from + 40))),
        3 => {
            let repeated = text[from..to.min(from + 200)].to_vec();
            text.splice(at..at, repeated);
        }
        4 | 5 => {
            let word = NUMBERS[random.below(NUMBERS.len())].bytes();
            let digits = |byte: &u8| byte.is_ascii_digit();
            let Some(start) = text[at..].iter().position(digits).map(|ahead| at + ahead) else { return };
            let end = text[start..].iter().position(|byte| !digits(byte)).map_or(text.len(), |ahead| start + ahead);
            text.splice(start..end, word);
        }
        6 => drop(text.splice(at..at, WORDS[random.below(WORDS.len())].bytes())),
        _ => {
            let mut lines: Vec<_> = text.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
            let (one, another) = (random.below(lines.len()), random.below(lines.len()));
            lines.swap(one, another);
            *text = lines.concat();
        }
    }
}

/// Number of damaged texts that are still valid traces.
fn survivors(name: &str, random: &mut Random, import: impl Fn(&[u8]) -> bool) -> u32 {
    let original = std::fs::read(sample(name)).unwrap();
    assert!(import(&original), "{name} undamaged");
    let mut survivors = 0;
    for _ in 0..TEXTS_PER_SAMPLE {
        let mut text = original.clone();
        for _ in 0..=random.below(4) {
            damage(&mut text, random);
        }
        let region = Region::new(ALLOCATOR);
        survivors += u32::from(import(&text));
        let allocated = region.change().bytes_allocated;
        let lossy = String::from_utf8_lossy(&text);
        assert!(
            allocated <= FIXED_BYTES + BYTES_PER_TEXT_BYTE * text.len(),
            "{allocated} bytes for {} of {name}:\n{lossy}",
            text.len()
        );
    }
    survivors
}

#[test]
fn damaged_traces_are_rejected_or_read_without_panics_or_excessive_memory() {
    let path = Path::new("damaged");
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let tensors = std::fs::read(sample("tiny.tensors.csv")).unwrap();
    let kernels = std::fs::read(sample("tiny.kernels.csv")).unwrap();
    let random = &mut random;
    let survivors = [
        survivors("tiny.kernels.csv", random, |text| g10::parse((path, &tensors[..]), (path, text)).is_ok()),
        survivors("tiny.tensors.csv", random, |text| g10::parse((path, text), (path, &kernels[..])).is_ok()),
        survivors("tiny.times.txt", random, |text| g10::parse_times(path, text).is_ok()),
        survivors("memory.log", random, |text| singa::parse_log(path, text).is_ok()),
        survivors("operations.txt", random, |text| singa::parse_ops(path, text, &[]).is_ok()),
        survivors("detector.log", random, |text| singa::parse_busy(path, text).is_ok()),
        survivors("profile.json", random, |text| kineto::parse(path, text, None).is_ok()),
        survivors("blocks.csv", random, |text| minimalloc::parse(path, text).is_ok()),
        survivors("iteration.json", random, |text| serde_json::from_slice::<Iteration>(text).is_ok()),
        survivors("stream.json", random, |text| serde_json::from_slice::<OpStream>(text).is_ok()),
    ];
    eprintln!("of {TEXTS_PER_SAMPLE} each, still traces: {survivors:?}");
    assert!(
        survivors.iter().all(|&survivors| (1..TEXTS_PER_SAMPLE).contains(&survivors)),
        "damage without effect, or always fatal"
    );
}
