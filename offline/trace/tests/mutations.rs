//! Importers on thousands of texts that were traces before somebody damaged them: an error or a trace, never a panic, and no more memory than a
//! multiple of the text. One test alone, as what is counted is the process's.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test stops at what it cannot do")]

use std::{
    alloc::System,
    path::{Path, PathBuf},
};

use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use trace::{
    Iteration, OpStream,
    import::{g10, kineto, minimalloc, singa},
};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const TEXTS_OF_EACH: u32 = 4000;
/// What any import may take: for buffers ...
const FIXED_BYTES: usize = 64 << 10;
/// ... and for each byte of text, over its whole life; vectors that double are counted with all they were.
const BYTES_OF_EACH: usize = 200;

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples").join(name)
}

/// Numbers without a pattern, the same in every run (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % end.max(1)
    }
}

/// Damage of every kind that files come with: bits, cut ends, lost and doubled stretches, numbers at the limits, lines out of place.
fn damage(text: &mut Vec<u8>, dice: &mut Dice) {
    const NUMBERS: [&str; 9] =
        ["0", "1", "-1", "4294967295", "4294967296", "18446744073709551615", "18446744073709551616", "1e308", "0.1"];
    const WORDS: [&str; 8] = ["\n", ",", "\0", "\"", "{", "[", "[[[[[[[[", "\u{fffd}"];
    if text.is_empty() {
        return;
    }
    let (at, other) = (dice.below(text.len()), dice.below(text.len()));
    let (from, to) = (at.min(other), at.max(other));
    match dice.below(8) {
        0 => text[at] ^= 1 << dice.below(8),
        1 => text.truncate(at),
        2 => drop(text.drain(from..to.min(from + 40))),
        3 => {
            let again = text[from..to.min(from + 200)].to_vec();
            text.splice(at..at, again);
        }
        4 | 5 => {
            let word = NUMBERS[dice.below(NUMBERS.len())].bytes();
            let digits = |byte: &u8| byte.is_ascii_digit();
            let Some(start) = text[at..].iter().position(digits).map(|ahead| at + ahead) else { return };
            let end = text[start..].iter().position(|byte| !digits(byte)).map_or(text.len(), |ahead| start + ahead);
            text.splice(start..end, word);
        }
        6 => drop(text.splice(at..at, WORDS[dice.below(WORDS.len())].bytes())),
        _ => {
            let mut lines: Vec<_> = text.split_inclusive(|&byte| byte == b'\n').map(<[u8]>::to_vec).collect();
            let (one, another) = (dice.below(lines.len()), dice.below(lines.len()));
            lines.swap(one, another);
            *text = lines.concat();
        }
    }
}

/// How many of the damaged texts are traces still.
fn survivors(name: &str, dice: &mut Dice, import: impl Fn(&[u8]) -> bool) -> u32 {
    let whole = std::fs::read(sample(name)).unwrap();
    assert!(import(&whole), "{name} itself");
    let mut survivors = 0;
    for _ in 0..TEXTS_OF_EACH {
        let mut text = whole.clone();
        for _ in 0..=dice.below(4) {
            damage(&mut text, dice);
        }
        let region = Region::new(ALLOCATOR);
        survivors += u32::from(import(&text));
        let taken = region.change().bytes_allocated;
        let shown = String::from_utf8_lossy(&text);
        assert!(
            taken <= FIXED_BYTES + BYTES_OF_EACH * text.len(),
            "{taken} bytes for {} of {name}:\n{shown}",
            text.len()
        );
    }
    survivors
}

#[test]
fn damaged_traces_are_refused_or_read_and_never_panic_or_take_much_memory() {
    let path = Path::new("damaged");
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let tensors = std::fs::read(sample("tiny.tensors.csv")).unwrap();
    let kernels = std::fs::read(sample("tiny.kernels.csv")).unwrap();
    let dice = &mut dice;
    let survivors = [
        survivors("tiny.kernels.csv", dice, |text| g10::parse((path, &tensors[..]), (path, text)).is_ok()),
        survivors("tiny.tensors.csv", dice, |text| g10::parse((path, text), (path, &kernels[..])).is_ok()),
        survivors("tiny.times.txt", dice, |text| g10::parse_times(path, text).is_ok()),
        survivors("memory.log", dice, |text| singa::parse_log(path, text).is_ok()),
        survivors("operations.txt", dice, |text| singa::parse_ops(path, text, &[]).is_ok()),
        survivors("detector.log", dice, |text| singa::parse_busy(path, text).is_ok()),
        survivors("profile.json", dice, |text| kineto::parse(path, text, None).is_ok()),
        survivors("blocks.csv", dice, |text| minimalloc::parse(path, text).is_ok()),
        survivors("iteration.json", dice, |text| serde_json::from_slice::<Iteration>(text).is_ok()),
        survivors("stream.json", dice, |text| serde_json::from_slice::<OpStream>(text).is_ok()),
    ];
    eprintln!("of {TEXTS_OF_EACH} each, still traces: {survivors:?}");
    assert!(survivors.iter().all(|&survivors| (1..TEXTS_OF_EACH).contains(&survivors)), "damage that shows nothing");
}
