//! Kernels compute the values of `contents` and `order`. Without a GPU, an interpreter of the few
//! instructions that they use runs them on plain memory, thread by thread.
#![cfg(test)]

use std::collections::HashMap;

use workloads::{
    PAGE_WORDS,
    contents::Contents,
    order::{Order, Shuffle},
};

const TEXT: &str = include_str!("../ptx/kernels.ptx");
/// Start address of memory; the last word is the one for sums.
const BASE: u64 = 0x7000_0000_0000;

struct Grid {
    blocks: u64,
    threads: u64,
}

struct Machine {
    words: Vec<u64>,
}

impl Machine {
    fn new(pages: u64) -> Self {
        Self { words: vec![0; usize::try_from(pages * PAGE_WORDS).unwrap() + 1] }
    }

    fn data(&mut self) -> &mut [u64] {
        self.words.split_last_mut().unwrap().1
    }

    fn count(&self) -> u64 {
        self.words.len() as u64 - 1
    }

    fn sum_address(&self) -> u64 {
        BASE + 8 * self.count()
    }

    fn sum(&mut self) -> u64 {
        std::mem::take(self.words.last_mut().unwrap())
    }

    fn at(&mut self, address: u64) -> &mut u64 {
        assert!(address.is_multiple_of(8));
        &mut self.words[usize::try_from((address - BASE) / 8).unwrap()]
    }

    fn launch(&mut self, kernel: &str, grid: &Grid, parameters: &[u64]) {
        let kernel = Kernel::named(kernel);
        assert_eq!(kernel.parameters.len(), parameters.len());
        for block in 0..grid.blocks {
            for thread in 0..grid.threads {
                let special = HashMap::from([
                    ("%ctaid.x", block),
                    ("%tid.x", thread),
                    ("%ntid.x", grid.threads),
                    ("%nctaid.x", grid.blocks),
                ]);
                kernel.run(self, &special, parameters);
            }
        }
    }
}

struct Kernel {
    parameters: Vec<&'static str>,
    /// Instructions as (predicate, operation, operands); labels are indices of instructions.
    code: Vec<(Option<&'static str>, &'static str, Vec<&'static str>)>,
    labels: HashMap<&'static str, usize>,
}

impl Kernel {
    fn named(name: &str) -> Self {
        let (_, rest) = TEXT.split_once(&format!(".entry {name}(")).unwrap();
        let (head, rest) = rest.split_once(")\n{").unwrap();
        let (body, _) = rest.split_once("\n}").unwrap();
        let parameters = head.split(',').map(|parameter| parameter.split_whitespace().last().unwrap()).collect();
        let (mut code, mut labels) = (Vec::new(), HashMap::new());
        for line in body.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(".reg")) {
            if let Some(label) = line.strip_suffix(':') {
                labels.insert(label, code.len());
                continue;
            }
            let line = line.strip_suffix(';').unwrap();
            let (predicate, line) = match line.strip_prefix('@') {
                Some(line) => line.split_once(' ').map(|(predicate, rest)| (Some(predicate), rest.trim())).unwrap(),
                None => (None, line),
            };
            let (operation, operands) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let trim = |operand: &'static str| operand.trim().trim_matches(['[', ']']);
            code.push((predicate, operation, operands.split(',').map(trim).filter(|text| !text.is_empty()).collect()));
        }
        Self { parameters, code, labels }
    }

    fn run(&self, machine: &mut Machine, special: &HashMap<&str, u64>, parameters: &[u64]) {
        let mut registers: HashMap<&str, u64> = HashMap::new();
        let mut at = 0;
        loop {
            let (predicate, operation, operands) = &self.code[at];
            at += 1;
            if predicate.is_some_and(|predicate| registers[predicate] == 0) {
                continue;
            }
            let value = |registers: &HashMap<&str, u64>, index: usize| {
                let operand: &str = operands[index];
                let hex = operand.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16).unwrap());
                hex.or_else(|| operand.parse().ok())
                    .or_else(|| special.get(operand).copied())
                    .unwrap_or_else(|| registers[operand])
            };
            let operand = |index| value(&registers, index);
            let result = match *operation {
                "ret" => return,
                "bra" => {
                    at = self.labels[operands[0]];
                    continue;
                }
                "st.global.u64" => {
                    *machine.at(operand(0)) = operand(1);
                    continue;
                }
                "red.global.add.u64" => {
                    let word = machine.at(operand(0));
                    *word = word.wrapping_add(operand(1));
                    continue;
                }
                "ld.param.u64" | "ld.param.u32" => {
                    let place = self.parameters.iter().position(|name| *name == operands[1]).unwrap();
                    parameters[place]
                }
                "ld.global.u64" => *machine.at(operand(1)),
                "mov.u32" | "mov.u64" | "cvt.u64.u32" => operand(1),
                "add.u64" => operand(1).wrapping_add(operand(2)),
                "mul.lo.u64" => operand(1).wrapping_mul(operand(2)),
                "mul.wide.u32" => (operand(1) & 0xffff_ffff) * (operand(2) & 0xffff_ffff),
                "xor.b64" => operand(1) ^ operand(2),
                "and.b64" => operand(1) & operand(2),
                "shl.b64" => operand(1) << operand(2),
                "shr.u64" => operand(1) >> operand(2),
                "setp.ge.u64" => u64::from(operand(1) >= operand(2)),
                "setp.gt.u64" => u64::from(operand(1) > operand(2)),
                "setp.lt.u64" => u64::from(operand(1) < operand(2)),
                "setp.le.u64" => u64::from(operand(1) <= operand(2)),
                other => panic!("{other}: the interpreter does not support this instruction"),
            };
            registers.insert(operands[0], result);
        }
    }
}

/// Grids with too few threads for the work, so that each thread loops, and with too many for the
/// last round.
const GRIDS: [Grid; 3] =
    [Grid { blocks: 3, threads: 5 }, Grid { blocks: 1, threads: 1 }, Grid { blocks: 2, threads: 32 }];
const PAGES: u64 = 16;

fn assert_contents(machine: &mut Machine, contents: Contents) {
    for (at, word) in (0..).zip(machine.data().iter()) {
        assert_eq!(*word, contents.word(at), "word {at}");
    }
}

#[test]
fn the_gpu_writes_the_pattern_that_the_cpu_expects() {
    for grid in GRIDS {
        let mut machine = Machine::new(PAGES);
        let count = machine.count();
        machine.launch("write_pattern", &grid, &[BASE, count, 1, 99]);
        assert_contents(&mut machine, Contents::written(99));
        assert_eq!(machine.sum(), 0, "a word behind the end was written");
    }
}

#[test]
fn an_increment_changes_the_first_word_of_every_page() {
    for grid in GRIDS {
        let mut machine = Machine::new(PAGES);
        let count = machine.count();
        machine.launch("write_pattern", &grid, &[BASE, count, 1, 5]);
        machine.launch("increment", &grid, &[BASE, PAGES, PAGE_WORDS]);
        assert_contents(&mut machine, Contents::written(5).incremented());
    }
}

#[test]
fn the_gpu_computes_the_sums_that_the_cpu_expects() {
    for grid in GRIDS {
        let mut machine = Machine::new(PAGES);
        let (count, out) = (machine.count(), machine.sum_address());
        machine.launch("write_pattern", &grid, &[BASE, count, 1, 5]);
        for order in [Order::Sequential, Order::Strided] {
            let stride = order.stride_words();
            machine.launch("weigh", &grid, &[BASE, order.count(count), stride, out]);
            assert_eq!(machine.sum(), Contents::written(5).weighed(count, stride), "{order:?}");
        }
        let Shuffle { mask, shift, seed } = Shuffle::new(PAGES, 7).unwrap();
        machine.launch("weigh_shuffled", &grid, &[BASE, mask, shift.into(), seed, out]);
        assert_eq!(machine.sum(), Contents::written(5).weighed(count, PAGE_WORDS));
    }
}

#[test]
fn a_wrong_word_changes_the_sum() {
    let mut machine = Machine::new(PAGES);
    let (count, out) = (machine.count(), machine.sum_address());
    machine.launch("write_pattern", &GRIDS[0], &[BASE, count, 1, 5]);
    machine.data()[1234] ^= 1;
    machine.launch("weigh", &GRIDS[0], &[BASE, count, 1, out]);
    assert_ne!(machine.sum(), Contents::written(5).weighed(count, 1));
}

#[test]
fn a_kernel_on_an_empty_range_accesses_nothing() {
    let mut machine = Machine::new(1);
    let out = machine.sum_address();
    machine.launch("write_pattern", &GRIDS[2], &[0, 0, 1, 0]);
    machine.launch("increment", &GRIDS[2], &[0, 0, 1]);
    machine.launch("weigh", &GRIDS[2], &[0, 0, 1, out]);
    // A shuffle of one page reads one word: here the word for sums, which is 0.
    machine.launch("weigh_shuffled", &GRIDS[2], &[out, 0, 0, 0, out]);
    assert!(machine.words.iter().all(|word| *word == 0));
}
