//! Speed of packing and unpacking, compared with copying the same bytes. One thread; buffers begin
//! with a page, as those for transfers do, and their pages are populated. The three alternate, so
//! that other load of the machine affects all of them. Speeds are shares of memcpy's: 1 is as fast
//! as copying, 0.5 half as fast.

#![expect(clippy::print_stdout, clippy::expect_used, reason = "a measurement")]

use std::{hint::black_box, time::Instant};

use zvc::{Codec, Isa, Packed, Width};

const KIB: usize = 1024;
const SIZES: [usize; 6] = [64 * KIB, 256 * KIB, KIB * KIB, 4 * KIB * KIB, 16 * KIB * KIB, 64 * KIB * KIB];
/// Number of allocations. The physical pages of buffers make a difference of up to a third.
const ALLOCATIONS: usize = 5;
/// Rounds for each allocation.
const ROUNDS: usize = 13;
/// Least bytes of one measurement: some tenths of a millisecond.
const LEAST_BYTES: usize = 8 * KIB * KIB;

/// Lower quartile and median of the rounds.
struct Speed {
    pack: [f64; 2],
    unpack: [f64; 2],
    ratio: f64,
}

fn main() {
    println!(
        "Shares of memcpy's speed, medians of {ALLOCATIONS} times {ROUNDS} rounds (a quarter of them was below the number in brackets); {}",
        Isa::best().name()
    );
    println!("\nwords of 4 bytes, with an index; with and without a checksum");
    println!(
        "| KiB | density | ratio | pack | unpack | pack, none | unpack, none |\n| --- | --- | --- | --- | --- | --- | --- |"
    );
    for bytes in SIZES {
        for tenths in [1, 2, 3, 4, 5, 6, 7, 8, 9, 10] {
            let density = f64::from(tenths) / 10.0;
            row(&format!("{} | {density:.1}", bytes / KIB), Codec::new(Width::Four), Isa::best(), bytes, density);
        }
    }
    println!("\nby instructions and size of words, density 0.5");
    println!(
        "| KiB | by | word | ratio | pack | unpack | pack, none | unpack, none |\n| --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    for bytes in [64 * KIB, 4 * KIB * KIB, 64 * KIB * KIB] {
        for isa in Isa::available() {
            for width in Width::ALL {
                let label = format!("{} | {} | {}", bytes / KIB, isa.name(), width.bytes());
                row(&label, Codec::new(width).with_isa(isa), isa, bytes, 0.5);
            }
        }
    }
}

fn row(label: &str, codec: Codec, isa: Isa, bytes: usize, density: f64) {
    let speeds = [codec, codec.without_checksum()].map(|codec| measure(codec, isa, bytes, density));
    print!("| {label} | {:.2} |", speeds[0].ratio);
    for Speed { pack, unpack, ratio: _ } in speeds {
        for [low, middle] in [pack, unpack] {
            print!(" {middle:.2} ({low:.2}) |");
        }
    }
    println!();
}

fn measure(codec: Codec, isa: Isa, bytes: usize, density: f64) -> Speed {
    let data = data(bytes, density);
    // All buffers live until the end, so that none gets the pages of one before it.
    let mut allocations = Vec::new();
    let mut rounds = Vec::new();
    let mut length = 0;
    for _ in 0..ALLOCATIONS {
        let sizes = [bytes, bytes, codec.bound_bytes(bytes).expect("a size that fits")];
        // Written once, so that each of their pages is populated.
        allocations.push(sizes.map(|bytes| vec![1_u8; bytes + 4096]));
        let buffers = allocations.last_mut().expect("the one above").each_mut();
        let [raw, copy, packed] = buffers.map(|buffer| {
            let begin = buffer.as_ptr().align_offset(4096);
            buffer.get_mut(begin..).expect("a page more than is needed")
        });
        let (raw, copy) = (raw.get_mut(..bytes).expect("as many"), copy.get_mut(..bytes).expect("as many"));
        raw.copy_from_slice(&data);
        length = codec.pack_into(raw, packed).expect("a buffer that is large enough");
        rounds.extend(measure_rounds(codec, isa, [raw, copy, packed], length));
        assert!(raw == copy, "unpacking restores the data");
    }
    let [pack, unpack] = [rounds.iter().map(|r| r.0).collect(), rounds.iter().map(|r| r.1).collect()].map(quartiles);
    Speed { pack, unpack, ratio: bytes as f64 / length as f64 }
}

/// Speeds of packing and unpacking in each round, as shares of memcpy's.
fn measure_rounds(codec: Codec, isa: Isa, [raw, copy, packed]: [&mut [u8]; 3], length: usize) -> Vec<(f64, f64)> {
    let repetitions = LEAST_BYTES.div_ceil(raw.len());
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let copying = seconds(repetitions, || black_box(&mut *copy).copy_from_slice(black_box(&*raw)));
        let packing = seconds(repetitions, || {
            black_box(codec.pack_into(black_box(&*raw), black_box(&mut *packed)).expect("as before"));
        });
        let unpacking = seconds(repetitions, || {
            let packed = Packed::parse(black_box(packed.get(..length).unwrap_or_default())).expect("what was packed");
            packed.with_isa(isa).unpack_into(black_box(&mut *copy)).expect("what was packed");
        });
        rounds.push((copying / packing, copying / unpacking));
    }
    rounds
}

fn seconds(repetitions: usize, mut work: impl FnMut()) -> f64 {
    let begin = Instant::now();
    for _ in 0..repetitions {
        work();
    }
    begin.elapsed().as_secs_f64()
}

fn quartiles(mut of: Vec<f64>) -> [f64; 2] {
    of.sort_by(f64::total_cmp);
    [of.len() / 4, of.len() / 2].map(|at| of.get(at).copied().unwrap_or_default())
}

/// Words of 4 bytes, each zero or not at random: no pattern that a branch predictor could learn.
fn data(bytes: usize, density: f64) -> Vec<u8> {
    let mut state = 1_u64;
    let mut random = move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        state >> 33
    };
    let word = |_| {
        let nonzero = (random() as f64) < density * (1_u64 << 31) as f64;
        if nonzero { u32::try_from(random()).unwrap_or(1) | 0x8001 } else { 0 }.to_le_bytes()
    };
    (0..bytes / 4).flat_map(word).collect()
}
