//! Network of three convolutions with `ReLU` and pooling, and two dense layers.

use super::{
    images::{Image, KINDS, Random, SIDE},
    layers::Layer,
};

/// Batch size: images whose gradients are summed before a step.
const STEP: usize = 32;

pub(crate) struct Network {
    layers: Vec<(&'static str, Layer)>,
}

impl Network {
    pub(crate) fn new(random: &mut Random) -> Self {
        let layers = vec![
            ("", Layer::convolution(1, 16, SIDE, random)),
            ("conv 1, ReLU", Layer::Relu),
            ("pool 1", Layer::Pool { side: SIDE }),
            ("", Layer::convolution(16, 32, SIDE / 2, random)),
            ("conv 2, ReLU", Layer::Relu),
            ("pool 2", Layer::Pool { side: SIDE / 2 }),
            ("", Layer::convolution(32, 48, SIDE / 4, random)),
            ("conv 3, ReLU", Layer::Relu),
            ("pool 3", Layer::Pool { side: SIDE / 4 }),
            ("", Layer::dense(48 * SIDE * SIDE / 64, 96, random)),
            ("dense 1, ReLU", Layer::Relu),
            ("", Layer::dense(96, KINDS, random)),
        ];
        Self { layers }
    }

    /// Trains on every image once, in random order.
    pub(crate) fn train(&mut self, images: &[Image], step: f32, random: &mut Random) {
        let mut order: Vec<&Image> = images.iter().collect();
        for at in (1..order.len()).rev() {
            order.swap(at, random.below(at + 1));
        }
        for images in order.chunks(STEP) {
            for image in images {
                self.learn(image);
            }
            for parameters in self.layers.iter_mut().filter_map(|(_, layer)| layer.parameters()).flatten() {
                parameters.step(step, images.len());
            }
        }
    }

    /// Share of images that are classified correctly.
    pub(crate) fn accuracy(&self, images: &[Image]) -> f64 {
        let right = images.iter().filter(|image| {
            let scores = self.outputs(image).pop().unwrap_or_default();
            let best = scores.iter().enumerate().max_by(|one, other| one.1.total_cmp(other.1));
            best.is_some_and(|(kind, _)| kind == image.kind)
        });
        right.count() as f64 / images.len() as f64
    }

    /// Outputs of the named layers for all of `images`, as they lie in memory.
    pub(crate) fn activations(&self, images: &[Image]) -> Vec<(&'static str, Vec<u8>)> {
        let mut all: Vec<(&str, Vec<u8>)> = self.layers.iter().map(|(name, _)| (*name, Vec::new())).collect();
        for image in images {
            for (output, (_, bytes)) in self.outputs(image).iter().zip(&mut all) {
                bytes.extend(output.iter().flat_map(|value| value.to_le_bytes()));
            }
        }
        all.retain(|(name, _)| !name.is_empty());
        all
    }

    fn outputs(&self, image: &Image) -> Vec<Vec<f32>> {
        let mut outputs: Vec<Vec<f32>> = Vec::new();
        for (_, layer) in &self.layers {
            outputs.push(layer.forward(outputs.last().unwrap_or(&image.pixels)));
        }
        outputs
    }

    fn learn(&mut self, image: &Image) {
        let outputs = self.outputs(image);
        let Some(scores) = outputs.last() else { return };
        // Gradient of cross-entropy over softmax: the difference of each probability from its
        // target.
        let greatest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let shares: Vec<f32> = scores.iter().map(|score| (score - greatest).exp()).collect();
        let sum: f32 = shares.iter().sum();
        let mut slope: Vec<f32> = shares.iter().map(|share| share / sum).collect();
        slope[image.kind] -= 1.0;
        for (at, (_, layer)) in self.layers.iter_mut().enumerate().rev() {
            let input = if at == 0 { &image.pixels } else { &outputs[at - 1] };
            slope = layer.backward(input, &outputs[at], &slope);
        }
    }
}
