//! Trains a small convolutional network, and reports after each epoch the size of its layers'
//! activations with zero-value compression, run-length encoding and zlib. A seed gives the same
//! result every time on a machine.
//!
//! * [`images`]: ten kinds of shapes in any place, size, direction and contrast
//! * [`layers`]: convolution, `ReLU`, pooling and dense layers, forward and backward
//! * [`network`]: the layers in a row, and stochastic gradient descent
//! * [`ratios`]: packed sizes of a layer's bytes

#![expect(clippy::indexing_slicing, clippy::expect_used, reason = "arrays whose sizes the layers know")]

mod images;
mod layers;
mod network;
mod ratios;

use self::{
    images::{Image, Random},
    network::Network,
    ratios::Sizes,
};

const TRAIN_IMAGES: usize = 3000;
const TEST_IMAGES: usize = 1000;
const EPOCHS: usize = 15;
/// Images whose activations are measured, always the same: the first training images.
const BATCH: usize = 256;

pub(crate) fn print(seed: u64) {
    let mut random = Random(seed);
    let train_images: Vec<Image> = (0..TRAIN_IMAGES).map(|_| Image::of(&mut random)).collect();
    let test_images: Vec<Image> = (0..TEST_IMAGES).map(|_| Image::of(&mut random)).collect();
    let mut network = Network::new(&mut random);
    println!(
        "seed {seed}, {TRAIN_IMAGES} images to train on, {TEST_IMAGES} others to test on; activations of {BATCH} images, 32-bit floats\n"
    );
    println!(
        "| epoch | accuracy | layer | KiB | density | ZVC | RLE | zlib |\n| --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    for epoch in 1..=EPOCHS {
        // Smaller steps towards the end.
        let step = 0.02 * if epoch > EPOCHS * 2 / 3 { 0.2 } else { 1.0 };
        network.train(&train_images, step, &mut random);
        let accuracy = format!("{:.1} %", 100.0 * network.accuracy(&test_images));
        let mut all = Sizes::default();
        for (name, bytes) in network.activations(&train_images[..BATCH]) {
            let sizes = Sizes::of(&bytes);
            println!("| {epoch} | {accuracy} | {name} | {sizes} |");
            all += sizes;
        }
        println!("| {epoch} | {accuracy} | all | {all} |");
    }
}
