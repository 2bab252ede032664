//! Trains a small convolutional network, and tells after each epoch what the activations of its layers take as zero-value compression, as runs of zeros
//! and as zlib has them: `cargo run --release -p zvc --example train [SEED]`. One seed, one result on a machine.
//!
//! * [`images`]: ten kinds of shapes in any place, size, direction and contrast
//! * [`layers`]: convolution, `ReLU`, pooling and dense layers, forward and backward
//! * [`network`]: the layers in a row, and stochastic gradient descent
//! * [`ratios`]: what the bytes of a layer take

#![expect(clippy::print_stdout, reason = "a report")]
#![expect(clippy::indexing_slicing, clippy::expect_used, reason = "arrays whose sizes the layers know")]

mod images;
mod layers;
mod network;
mod ratios;

use images::Image;
use network::Network;
use ratios::Sizes;

const TRAINED_ON: usize = 3000;
const TESTED_ON: usize = 1000;
const EPOCHS: usize = 15;
/// The images whose activations are looked at, always the same: the first of those that it is trained on.
const BATCH: usize = 256;

fn main() {
    let seed = std::env::args().nth(1).map_or(1, |seed| seed.parse().expect("a seed is a number"));
    let mut random = images::Random(seed);
    let trained_on: Vec<Image> = (0..TRAINED_ON).map(|_| Image::of(&mut random)).collect();
    let tested_on: Vec<Image> = (0..TESTED_ON).map(|_| Image::of(&mut random)).collect();
    let mut network = Network::new(&mut random);
    println!(
        "seed {seed}, {TRAINED_ON} images to train on, {TESTED_ON} others to test on; activations of {BATCH} images, 32-bit floats\n"
    );
    println!(
        "| epoch | accuracy | layer | KiB | density | ZVC | RLE | zlib |\n| --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    for epoch in 1..=EPOCHS {
        // Smaller steps towards the end.
        let step = 0.02 * if epoch > EPOCHS * 2 / 3 { 0.2 } else { 1.0 };
        network.train(&trained_on, step, &mut random);
        let accuracy = format!("{:.1} %", 100.0 * network.accuracy(&tested_on));
        let mut all = Sizes::default();
        for (name, bytes) in network.activations(&trained_on[..BATCH]) {
            let sizes = Sizes::of(&bytes);
            println!("| {epoch} | {accuracy} | {name} | {sizes} |");
            all += sizes;
        }
        println!("| {epoch} | {accuracy} | all | {all} |");
    }
}
