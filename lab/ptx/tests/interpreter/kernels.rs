//! Kernels compiled by NVRTC against references on the CPU, with memory that is resident, that
//! warps have to park for, and that is remote.

use crate::common::Argument::{Float, Int, Long};
use crate::common::{Answer, Argument, Buffer, Shape, kernel, launch, load};
use ptx::{Counts, Module};

const TEXT: &str = include_str!("../kernels/kernels.ptx");
const ANSWERS: [Answer; 4] = [Answer::Resident, Answer::Park, Answer::Remote, Answer::Go];

struct Machine {
    buffer: Buffer,
    module: Module,
}

impl Machine {
    fn new(answer: Answer) -> Self {
        let mut buffer = Buffer::new(8 << 20, answer);
        let module = load(&[TEXT], &mut buffer);
        Self { buffer, module }
    }

    fn run(&mut self, name: &str, grid: [u32; 3], block: [u32; 3], shared: u32, values: &[Argument]) -> Counts {
        let kernel = kernel(&self.module, name);
        launch(&kernel, &Shape(grid, block, shared), values, &mut self.buffer).expect("the kernel ends")
    }
}

fn numbers(number: usize, seed: u32) -> Vec<f32> {
    (0..number as u32).map(|i| ((i + seed).wrapping_mul(2_654_435_761) >> 8) as f32 / 16_777_216.0 - 0.5).collect()
}

fn close(left: &[f32], right: &[f64], bound: f64) {
    assert_eq!(left.len(), right.len());
    for (index, (left, right)) in left.iter().zip(right).enumerate() {
        assert!((f64::from(*left) - right).abs() <= bound * (1.0 + right.abs()), "{index}: {left} is not {right}");
    }
}

#[test]
fn vector_add() {
    for answer in ANSWERS {
        let mut machine = Machine::new(answer);
        let (a, b) = (numbers(40_001, 1), numbers(40_001, 2));
        let (x, y, z) = (machine.buffer.put(&a), machine.buffer.put(&b), machine.buffer.reserve(160_004));
        let counts = machine.run("vector_add", [157, 1, 1], [256, 1, 1], 0, &[Long(x), Long(y), Long(z), Int(40_001)]);
        assert_eq!((counts.loads, counts.stores, counts.atomics), (80_002, 40_001, 0));
        let sums: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        assert_eq!(machine.buffer.get::<f32>(z, 40_001), sums);
        assert_eq!(answer == Answer::Park, machine.buffer.parks > 0);
    }
}

#[test]
fn matmul() {
    let mut machine = Machine::new(Answer::Park);
    let (m, n, k) = (50, 37, 41);
    let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
    let (x, y, z) = (machine.buffer.put(&a), machine.buffer.put(&b), machine.buffer.reserve((m * n * 4) as u64));
    let values = [Long(x), Long(y), Long(z), Int(m as i32), Int(n as i32), Int(k as i32)];
    machine.run("matmul", [3, 4, 1], [16, 16, 1], 0, &values);
    let mut product = vec![0f32; m * n];
    for row in 0..m {
        for column in 0..n {
            for i in 0..k {
                product[row * n + column] = a[row * k + i].mul_add(b[i * n + column], product[row * n + column]);
            }
        }
    }
    assert_eq!(machine.buffer.get::<f32>(z, m * n), product);
}

#[test]
fn reduce() {
    for answer in ANSWERS {
        let mut machine = Machine::new(answer);
        let x = numbers(100_000, 3);
        let (from, to) = (machine.buffer.put(&x), machine.buffer.put(&[0f32]));
        machine.run("reduce", [16, 1, 1], [256, 1, 1], 0, &[Long(from), Long(to), Int(100_000)]);
        close(&machine.buffer.get::<f32>(to, 1), &[x.iter().map(|&x| f64::from(x)).sum()], 1e-4);
    }
}

#[test]
fn softmax() {
    let mut machine = Machine::new(Answer::Park);
    let (rows, columns) = (9, 333);
    let x = numbers(rows * columns, 4);
    let (from, to) = (machine.buffer.put(&x), machine.buffer.reserve((rows * columns * 4) as u64));
    machine.run("softmax", [9, 1, 1], [128, 1, 1], 128, &[Long(from), Long(to), Int(columns as i32)]);
    let mut expected = Vec::new();
    for row in x.chunks(columns) {
        let powers: Vec<f64> = row.iter().map(|&x| f64::from(x).exp()).collect();
        let sum: f64 = powers.iter().sum();
        expected.extend(powers.iter().map(|power| power / sum));
    }
    close(&machine.buffer.get::<f32>(to, rows * columns), &expected, 1e-6);
}

#[test]
fn histogram() {
    for answer in ANSWERS {
        let mut machine = Machine::new(answer);
        let x: Vec<u32> = (0..20_000u32).map(|i| i.wrapping_mul(2_654_435_761) >> 7).collect();
        let (from, counts, total) =
            (machine.buffer.put(&x), machine.buffer.put(&[0u32; 256]), machine.buffer.put(&[0u64]));
        machine.run("histogram", [5, 1, 1], [256, 1, 1], 0, &[Long(from), Long(counts), Long(total), Int(20_000)]);
        let mut expected = vec![0u32; 256];
        for x in &x {
            expected[(x & 255) as usize] += 1;
        }
        assert_eq!(machine.buffer.get::<u32>(counts, 256), expected);
        assert_eq!(machine.buffer.get::<u64>(total, 1), [5 * 256]);
    }
}

#[test]
fn convolution() {
    let mut machine = Machine::new(Answer::Resident);
    let (images, channels, height, width, outputs) = (2, 3, 9, 13, 4);
    let x = numbers(images * channels * height * width, 5);
    let (w, bias) = (numbers(outputs * channels * 9, 6), numbers(outputs, 7));
    let size = images * outputs * height * width;
    let pointers = [Long(machine.buffer.put(&x)), Long(machine.buffer.put(&w)), Long(machine.buffer.put(&bias))];
    let to = machine.buffer.reserve((size * 4) as u64);
    let sizes = [Int(channels as i32), Int(height as i32), Int(width as i32), Int(outputs as i32)];
    let values: Vec<Argument> = pointers.into_iter().chain([Long(to)]).chain(sizes).collect();
    machine.run("conv3x3_relu", [1, 3, 8], [32, 4, 1], 0, &values);
    let mut expected = Vec::new();
    for (image, output, row, column) in (0..size)
        .map(|i| (i / (outputs * height * width), i / (height * width) % outputs, i / width % height, i % width))
    {
        let mut sum = f64::from(bias[output]);
        for (c, i, j) in (0..channels * 9).map(|i| (i / 9, i / 3 % 3, i % 3)) {
            let (h, v) = (row + i, column + j);
            if (1..=height).contains(&h) && (1..=width).contains(&v) {
                sum += f64::from(x[((image * channels + c) * height + h - 1) * width + v - 1])
                    * f64::from(w[(output * channels + c) * 9 + i * 3 + j]);
            }
        }
        expected.push(sum.max(0.0));
    }
    close(&machine.buffer.get::<f32>(to, size), &expected, 1e-5);
}

#[test]
fn layernorm() {
    let mut machine = Machine::new(Answer::Park);
    let (rows, size) = (5, 200);
    let (x, gain, bias) = (numbers(rows * size, 8), numbers(size, 9), numbers(size, 10));
    let pointers = [machine.buffer.put(&x), machine.buffer.put(&gain), machine.buffer.put(&bias)].map(Long);
    let to = machine.buffer.reserve((rows * size * 4) as u64);
    let values = [pointers[0], pointers[1], pointers[2], Long(to), Int(size as i32), Float(1e-5)];
    machine.run("layernorm", [5, 1, 1], [64, 1, 1], 0, &values);
    let mut expected = Vec::new();
    for row in x.chunks(size) {
        let mean = row.iter().map(|&x| f64::from(x)).sum::<f64>() / size as f64;
        let variance = row.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / size as f64;
        for (i, &x) in row.iter().enumerate() {
            expected.push((f64::from(x) - mean) / (variance + 1e-5).sqrt() * f64::from(gain[i]) + f64::from(bias[i]));
        }
    }
    close(&machine.buffer.get::<f32>(to, rows * size), &expected, 1e-4);
}

#[test]
fn adam() {
    let mut machine = Machine::new(Answer::Park);
    let n = 1000;
    let (p, g) = (numbers(n, 11), numbers(n, 12));
    let at = [
        machine.buffer.put(&p),
        machine.buffer.put(&g),
        machine.buffer.put(&vec![0f32; n]),
        machine.buffer.put(&vec![0f32; n]),
    ];
    let values = [
        Long(at[0]),
        Long(at[1]),
        Long(at[2]),
        Long(at[3]),
        Int(n as i32),
        Float(0.001),
        Float(0.9),
        Float(0.999),
        Float(1e-8),
        Int(3),
    ];
    machine.run("adam", [4, 1, 1], [256, 1, 1], 0, &values);
    let (b1, b2) = (f64::from(0.9f32), f64::from(0.999f32));
    let expected: Vec<f64> = p
        .iter()
        .zip(&g)
        .map(|(&p, &g)| {
            let g = f64::from(g);
            let (first, second) = ((1.0 - b1) * g / (1.0 - b1.powi(3)), (1.0 - b2) * g * g / (1.0 - b2.powi(3)));
            f64::from(p) - 0.001 * first / (second.sqrt() + 1e-8)
        })
        .collect();
    close(&machine.buffer.get::<f32>(at[0], n), &expected, 1e-6);
}

#[test]
fn functions_of_floats() {
    let mut machine = Machine::new(Answer::Resident);
    let x: Vec<f32> = numbers(1000, 13).iter().map(|x| x * 40.0).collect();
    let (from, to, three) = (machine.buffer.put(&x), machine.buffer.reserve(4000), machine.buffer.reserve(12_000));
    machine.run("gelu", [4, 1, 1], [256, 1, 1], 0, &[Long(from), Long(to), Int(1000)]);
    let gelu = |v: f64| 0.5 * v * (1.0 + (0.797_884_56 * (v + 0.044_715 * v * v * v)).tanh());
    let expected: Vec<f64> = x.iter().map(|&x| gelu(f64::from(x))).collect();
    close(&machine.buffer.get::<f32>(to, 1000), &expected, 1e-6);
    machine.run("trigonometry", [4, 1, 1], [256, 1, 1], 0, &[Long(from), Long(three), Int(1000)]);
    let expected: Vec<f64> =
        x.iter().map(|&x| f64::from(x)).flat_map(|x| [x.sin(), x.cos(), (x.abs() + 1.0).ln()]).collect();
    close(&machine.buffer.get::<f32>(three, 3000), &expected, 1e-6);
}

#[test]
fn doubles() {
    let mut machine = Machine::new(Answer::Park);
    let x: Vec<f64> = (0..100).map(|i| f64::from(i) * 0.37).collect();
    let (from, to) = (machine.buffer.put(&x), machine.buffer.reserve(800));
    machine.run("doubles", [1, 1, 1], [128, 1, 1], 0, &[Long(from), Long(to), Int(100)]);
    let expected: Vec<f64> = x.iter().map(|x| x.mul_add(*x, 1.0).sqrt() / (x + 3.0)).collect();
    assert_eq!(machine.buffer.get::<f64>(to, 100), expected);
}

#[test]
fn embed() {
    for answer in ANSWERS {
        let mut machine = Machine::new(answer);
        let table = numbers(64 * 128, 14);
        let ids: Vec<i64> = (0..20).map(|i| i * 7 % 64).collect();
        let (at_ids, at_table, to) =
            (machine.buffer.put(&ids), machine.buffer.put(&table), machine.buffer.reserve(20 * 512));
        machine.run("embed", [20, 1, 1], [32, 1, 1], 0, &[Long(at_ids), Long(at_table), Long(to), Int(32)]);
        let expected: Vec<f32> = ids.iter().flat_map(|&id| table[id as usize * 128..][..128].to_vec()).collect();
        assert_eq!(machine.buffer.get::<f32>(to, 20 * 128), expected);
    }
}

#[test]
fn zero_value_codec() {
    for answer in ANSWERS {
        let mut machine = Machine::new(answer);
        let units = 100usize;
        let x: Vec<u32> = (0..units as u32 * 32).map(|i| if i * 7 % 3 == 0 { i | 1 } else { 0 }).collect();
        let from = machine.buffer.put(&x);
        let (counts, masks) = (machine.buffer.reserve(units as u64 * 4), machine.buffer.reserve(units as u64 * 4));
        let shape = ([13, 1, 1], [256, 1, 1]);
        machine.run("zvc_count", shape.0, shape.1, 0, &[Long(from), Long(counts), Long(masks), Int(units as i32)]);
        let sizes = machine.buffer.get::<u32>(counts, units);
        let offsets: Vec<u32> = sizes.iter().scan(0, |sum, size| Some(std::mem::replace(sum, *sum + size))).collect();
        let offsets = machine.buffer.put(&offsets);
        let packed = machine.buffer.reserve(u64::from(sizes.iter().sum::<u32>()) * 4);
        let back = machine.buffer.put(&vec![7u32; x.len()]);
        let values = [Long(from), Long(offsets), Long(masks), Long(packed), Int(units as i32)];
        machine.run("zvc_pack", shape.0, shape.1, 0, &values);
        machine.run("zvc_unpack", shape.0, shape.1, 0, &[Long(packed), Long(offsets), Long(back), Int(units as i32)]);
        assert_eq!(machine.buffer.get::<u32>(back, x.len()), x);
    }
}

#[test]
fn calls() {
    for answer in ANSWERS {
        let mut machine = Machine::new(answer);
        let (recursive, indirect) = (machine.buffer.reserve(256), machine.buffer.reserve(256));
        machine.run("calls", [1, 1, 1], [64, 1, 1], 0, &[Long(recursive), Long(indirect)]);
        let fibonacci = [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89];
        let expected: Vec<u32> = (0..64).map(|i| fibonacci[i % 12]).collect();
        assert_eq!(machine.buffer.get::<u32>(recursive, 64), expected);
        let expected: Vec<i32> = (0..64).map(|i| if i & 1 == 0 { 2 * i } else { i * i }).collect();
        assert_eq!(machine.buffer.get::<i32>(indirect, 64), expected);
    }
}

#[test]
fn prints() {
    for answer in ANSWERS {
        let mut machine = Machine::new(answer);
        machine.run("prints", [1, 1, 1], [64, 1, 1], 0, &[Int(3)]);
        assert_eq!(machine.buffer.printed, "thread 0:  0.00 text\nthread 1:  0.50 text\nthread 2:  1.00 text\n");
    }
}
