//! Deterministic mutations of inputs: bits, truncation, removed, duplicated and swapped spans,
//! extreme numbers, words of text formats, and parts of other inputs.

const NUMBERS: [&str; 10] = [
    "0",
    "1",
    "-1",
    "4294967295",
    "4294967296",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "0.1",
];
const WORDS: [&str; 14] =
    ["\n", "\r\n", "\n\n", ",", ":", "\0", "\"", "{", "[[[[[[[[", "}", "\u{fffd}", "\u{1b}[2J", "../", "\\u0000"];
const BYTES: [u8; 6] = [0, 1, 0x7f, 0x80, 0xfe, 0xff];

/// Endless sequence of mutated inputs.
#[derive(Debug)]
pub struct Mutator {
    seeds: Vec<Vec<u8>>,
    /// State of xorshift64.
    state: u64,
    generated: usize,
}

impl Mutator {
    /// Mutations of these inputs in turn; of an empty one without any.
    #[must_use]
    pub fn new(seeds: Vec<Vec<u8>>) -> Self {
        Self { seeds, state: 0x9e37_79b9_7f4a_7c15, generated: 0 }
    }

    /// Next input.
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "it has no end")]
    pub fn next(&mut self) -> Vec<u8> {
        let mut input = self.seeds.get(self.generated % self.seeds.len().max(1)).cloned().unwrap_or_default();
        self.generated += 1;
        for _ in 0..=self.below(4) {
            self.damage(&mut input);
        }
        input
    }

    fn below(&mut self, end: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        usize::try_from(self.state >> 16).unwrap_or_default() % end.max(1)
    }

    fn damage(&mut self, input: &mut Vec<u8>) {
        let (at, other) = (self.below(input.len() + 1), self.below(input.len() + 1));
        let (from, to) = (at.min(other), at.max(other));
        match self.below(10) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 if at < input.len() => input[at] = BYTES[self.below(BYTES.len())],
            2 => input.truncate(at),
            3 => drop(input.drain(from..to.min(from + 64))),
            4 => {
                let again = input[from..to.min(from + 256)].to_vec();
                drop(input.splice(at..at, again));
            }
            5 | 6 => {
                let is_digit = |byte: &u8| byte.is_ascii_digit();
                let Some(begin) = input[at..].iter().position(is_digit).map(|ahead| at + ahead) else { return };
                let end =
                    input[begin..].iter().position(|byte| !is_digit(byte)).map_or(input.len(), |ahead| begin + ahead);
                drop(input.splice(begin..end, NUMBERS[self.below(NUMBERS.len())].bytes()));
            }
            7 => drop(input.splice(at..at, WORDS[self.below(WORDS.len())].bytes())),
            8 => {
                let mut lines: Vec<_> = input.split_inclusive(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
                let (one, another) = (self.below(lines.len()), self.below(lines.len()));
                if !lines.is_empty() {
                    lines.swap(one, another);
                }
                *input = lines.concat();
            }
            _ => {
                let part = self.below(self.seeds.len());
                let part = self.seeds.get(part).cloned().unwrap_or_default();
                let (one, another) = (self.below(part.len() + 1), self.below(part.len() + 1));
                let part = part[one.min(another)..one.max(another)].iter().take(256).copied();
                drop(input.splice(from..to.min(from + 256), part.collect::<Vec<_>>()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_has_the_same_inputs() {
        let generated = || {
            let mut mutator = Mutator::new(vec![b"one 12\n".to_vec(), b"{\"two\":3}\n".to_vec()]);
            (0..1000).map(|_| mutator.next()).collect::<Vec<_>>()
        };
        assert_eq!(generated(), generated());
        let distinct: std::collections::HashSet<_> = generated().into_iter().collect();
        assert!(distinct.len() > 500, "{}", distinct.len());
    }

    #[test]
    fn missing_seeds_still_give_inputs() {
        assert!((0..100).map(|_| Mutator::new(Vec::new()).next()).all(|input| input.len() < 1024));
    }
}
