//! Trains a convolutional network with Burn, unmodified, and prints a line of JSON for each iteration.
//!
//! The fields are those of train.py: the loss is there by its bits, too. The data depend on nothing but the program.
//! The hidden layer has most of the parameters; its width is the second argument.

use std::time::Instant;

use burn::{
    backend::{Autodiff, Cuda, cuda::CudaDevice},
    module::Module,
    nn::{
        Linear, LinearConfig, Relu,
        conv::{Conv2d, Conv2dConfig},
        loss::CrossEntropyLossConfig,
    },
    optim::{AdamConfig, GradientsParams, Optimizer},
    prelude::*,
};
use serde_json::json;

const BATCH: usize = 32;
const CLASSES: usize = 10;
const SIDE: usize = 16;
const HIDDEN: usize = 64;

/// Two convolutions and two linear layers.
#[derive(Module, Debug)]
struct Cnn<B: Backend> {
    first: Conv2d<B>,
    second: Conv2d<B>,
    hidden: Linear<B>,
    output: Linear<B>,
    relu: Relu,
}

impl<B: Backend> Cnn<B> {
    fn new(hidden: usize, device: &B::Device) -> Self {
        // Each convolution of 3 x 3 takes two from the side.
        let features = 16 * (SIDE - 4) * (SIDE - 4);
        Self {
            first: Conv2dConfig::new([1, 8], [3, 3]).init(device),
            second: Conv2dConfig::new([8, 16], [3, 3]).init(device),
            hidden: LinearConfig::new(features, hidden).init(device),
            output: LinearConfig::new(hidden, CLASSES).init(device),
            relu: Relu::new(),
        }
    }

    fn forward(&self, images: Tensor<B, 4>) -> Tensor<B, 2> {
        let first = self.relu.forward(self.first.forward(images));
        let second = self.relu.forward(self.second.forward(first));
        self.output.forward(self.relu.forward(self.hidden.forward(second.flatten(1, 3))))
    }
}

/// Numbers from -1 to 1 in a fixed order.
fn pixels() -> Vec<f32> {
    (0u32..).take(BATCH * SIDE * SIDE).map(|index| (index * 7919 % 1000) as f32 / 500.0 - 1.0).collect()
}

fn labels() -> Vec<i32> {
    (0..).take(CLASSES).cycle().take(BATCH).collect()
}

fn train(iterations: usize, hidden: usize) {
    type Gpu = Autodiff<Cuda<f32, i32>>;
    let device = CudaDevice::default();
    Gpu::seed(&device, 1);
    let images = Tensor::<Gpu, 1>::from_floats(pixels().as_slice(), &device).reshape([BATCH, 1, SIDE, SIDE]);
    let labels = Tensor::<Gpu, 1, Int>::from_ints(labels().as_slice(), &device);
    let mut model = Cnn::<Gpu>::new(hidden, &device);
    let mut optimizer = AdamConfig::new().init();
    let loss_of = CrossEntropyLossConfig::new().init(&device);
    for iteration in 0..iterations {
        let begin = Instant::now();
        let loss = loss_of.forward(model.forward(images.clone()), labels.clone());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(0.01, model, gradients);
        let value: f32 = loss.into_scalar();
        let seconds = (begin.elapsed().as_secs_f64() * 1e3).round() / 1e3;
        let bits = format!("{:08x}", value.to_bits());
        println!("{}", json!({ "iteration": iteration, "loss": value, "bits": bits, "seconds": seconds }));
    }
}

fn main() {
    let numbers: Result<Vec<usize>, _> = std::env::args().skip(1).map(|argument| argument.parse()).collect();
    match numbers.as_deref() {
        Ok(&[iterations]) => train(iterations, HIDDEN),
        Ok(&[iterations, hidden]) => train(iterations, hidden),
        _ => {
            eprintln!("usage: burn-train ITERATIONS [HIDDEN]");
            std::process::exit(2);
        }
    }
}
