//! Layers, for one image at a time: channel by channel, row by row.

use super::images::Random;

pub(crate) enum Layer {
    Convolution(Convolution),
    Relu,
    /// Maximum of two by two; `side` is that of the input.
    Pool {
        side: usize,
    },
    Dense(Dense),
}

/// Convolution of three by three, with zeros around the image.
pub(crate) struct Convolution {
    inputs: usize,
    outputs: usize,
    side: usize,
    /// Nine for each input of each output.
    weights: Parameters,
    biases: Parameters,
}

pub(crate) struct Dense {
    inputs: usize,
    /// One for each input of each output.
    weights: Parameters,
    biases: Parameters,
}

pub(crate) struct Parameters {
    values: Vec<f32>,
    gradient: Vec<f32>,
    velocity: Vec<f32>,
}

impl Layer {
    pub(crate) fn convolution(inputs: usize, outputs: usize, side: usize, random: &mut Random) -> Self {
        let weights = Parameters::random(9 * inputs * outputs, 9 * inputs, random);
        Self::Convolution(Convolution { inputs, outputs, side, weights, biases: Parameters::zero(outputs) })
    }

    pub(crate) fn dense(inputs: usize, outputs: usize, random: &mut Random) -> Self {
        let weights = Parameters::random(inputs * outputs, inputs, random);
        Self::Dense(Dense { inputs, weights, biases: Parameters::zero(outputs) })
    }

    pub(crate) fn forward(&self, input: &[f32]) -> Vec<f32> {
        match self {
            Self::Convolution(layer) => layer.forward(input),
            Self::Relu => input.iter().map(|value| value.max(0.0)).collect(),
            Self::Pool { side } => pool(input, *side),
            Self::Dense(layer) => layer.forward(input),
        }
    }

    /// Backward pass: from the gradient by the output, `slope`, to the gradient by the input.
    /// Accumulates the gradients by the parameters.
    pub(crate) fn backward(&mut self, input: &[f32], output: &[f32], slope: &[f32]) -> Vec<f32> {
        match self {
            Self::Convolution(layer) => layer.backward(input, slope),
            Self::Relu => output.iter().zip(slope).map(|(out, slope)| if *out > 0.0 { *slope } else { 0.0 }).collect(),
            Self::Pool { side } => unpool(input, output, slope, *side),
            Self::Dense(layer) => layer.backward(input, slope),
        }
    }

    pub(crate) fn parameters(&mut self) -> Option<[&mut Parameters; 2]> {
        match self {
            Self::Convolution(layer) => Some([&mut layer.weights, &mut layer.biases]),
            Self::Dense(layer) => Some([&mut layer.weights, &mut layer.biases]),
            Self::Relu | Self::Pool { .. } => None,
        }
    }
}

impl Convolution {
    fn forward(&self, input: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; self.outputs * self.side * self.side];
        for (plane, bias) in out.chunks_mut(self.side * self.side).zip(&self.biases.values) {
            plane.fill(*bias);
        }
        convolve(&padded(input, self.side), self.side, &self.weights.values, &mut out);
        out
    }

    fn backward(&mut self, input: &[f32], slope: &[f32]) -> Vec<f32> {
        let (input, side) = (padded(input, self.side), self.side);
        let gradients = self.weights.gradient.chunks_mut(9 * self.inputs);
        for ((slope, gradient), bias) in slope.chunks(side * side).zip(gradients).zip(&mut self.biases.gradient) {
            *bias += slope.iter().sum::<f32>();
            for (input, gradient) in input.chunks((side + 2) * (side + 2)).zip(gradient.chunks_mut(9)) {
                correlate(input, slope, side, gradient);
            }
        }
        // The backward pass is a convolution as well: from outputs to inputs, with each kernel
        // reversed.
        let mut turned = Vec::with_capacity(self.weights.values.len());
        for from in 0..self.inputs {
            for to in 0..self.outputs {
                let at = 9 * (to * self.inputs + from);
                turned.extend(self.weights.values[at..at + 9].iter().rev());
            }
        }
        let mut out = vec![0.0; self.inputs * side * side];
        convolve(&padded(slope, side), side, &turned, &mut out);
        out
    }
}

/// Adds a border of zeros to each plane.
fn padded(planes: &[f32], side: usize) -> Vec<f32> {
    let wide = side + 2;
    let mut out = vec![0.0; planes.len() / (side * side) * wide * wide];
    for (from, to) in planes.chunks(side * side).zip(out.chunks_mut(wide * wide)) {
        for (from, to) in from.chunks(side).zip(to[wide..].chunks_mut(wide)) {
            to[1..=side].copy_from_slice(from);
        }
    }
    out
}

/// Adds the convolution of all planes of `input`, which are padded, to each plane of `out`.
fn convolve(input: &[f32], side: usize, weights: &[f32], out: &mut [f32]) {
    let wide = side + 2;
    let inputs = input.len() / (wide * wide);
    for (out, kernels) in out.chunks_mut(side * side).zip(weights.chunks(9 * inputs)) {
        for (input, kernel) in input.chunks(wide * wide).zip(kernels.as_chunks::<9>().0) {
            for (row, out) in out.chunks_mut(side).enumerate() {
                let [above, here, below] = [0, 1, 2].map(|down| &input[(row + down) * wide..(row + down + 1) * wide]);
                let windows = above.array_windows().zip(here.array_windows()).zip(below.array_windows());
                for (out, (([a, b, c], [d, e, f]), [g, h, i])) in out.iter_mut().zip(windows) {
                    *out += kernel[0] * a + kernel[1] * b + kernel[2] * c;
                    *out += kernel[3] * d + kernel[4] * e + kernel[5] * f;
                    *out += kernel[6] * g + kernel[7] * h + kernel[8] * i;
                }
            }
        }
    }
}

/// Adds to each of a kernel's nine gradients the product of the shifted input plane and the
/// gradient by the output. Sums of four become vector instructions.
fn correlate(input: &[f32], slope: &[f32], side: usize, gradient: &mut [f32]) {
    let wide = side + 2;
    for (down, gradient) in gradient.chunks_mut(3).enumerate() {
        let mut sums = [[0.0; 4]; 3];
        for (row, slope) in slope.chunks(side).enumerate() {
            let input = &input[(row + down) * wide..(row + down + 1) * wide];
            for (at, slope) in slope.as_chunks::<4>().0.iter().enumerate() {
                for (right, sums) in sums.iter_mut().enumerate() {
                    let input = &input[4 * at + right..4 * at + right + 4];
                    for lane in 0..4 {
                        sums[lane] += slope[lane] * input[lane];
                    }
                }
            }
        }
        for (gradient, sums) in gradient.iter_mut().zip(sums) {
            *gradient += sums.iter().sum::<f32>();
        }
    }
}

/// Indices of the four inputs of an output.
fn four(at: usize, side: usize) -> [usize; 4] {
    let half = side / 2;
    let (row, column) = (at / half, at % half);
    let first = 2 * row * side + 2 * column;
    [first, first + 1, first + side, first + side + 1]
}

/// Planes follow each other, and so do their rows: the index of a row determines its plane.
fn pool(input: &[f32], side: usize) -> Vec<f32> {
    let greatest = |at| four(at, side).into_iter().map(|from| input[from]).fold(f32::NEG_INFINITY, f32::max);
    (0..input.len() / 4).map(greatest).collect()
}

fn unpool(input: &[f32], output: &[f32], slope: &[f32], side: usize) -> Vec<f32> {
    let mut out = vec![0.0; input.len()];
    #[expect(clippy::float_cmp, reason = "it is one of the four")]
    for (at, (greatest, slope)) in output.iter().zip(slope).enumerate() {
        if let Some(from) = four(at, side).into_iter().find(|from| input[*from] == *greatest) {
            out[from] = *slope;
        }
    }
    out
}

impl Dense {
    fn forward(&self, input: &[f32]) -> Vec<f32> {
        let rows = self.weights.values.chunks(self.inputs).zip(&self.biases.values);
        rows.map(|(row, bias)| bias + row.iter().zip(input).map(|(weight, value)| weight * value).sum::<f32>())
            .collect()
    }

    fn backward(&mut self, input: &[f32], slope: &[f32]) -> Vec<f32> {
        let mut out = vec![0.0; self.inputs];
        let weights = self.weights.values.chunks(self.inputs).zip(self.weights.gradient.chunks_mut(self.inputs));
        for (((weights, gradient), bias), slope) in weights.zip(&mut self.biases.gradient).zip(slope) {
            *bias += slope;
            for (((weight, gradient), input), out) in weights.iter().zip(gradient).zip(input).zip(&mut out) {
                *gradient += slope * input;
                *out += slope * weight;
            }
        }
        out
    }
}

impl Parameters {
    fn zero(count: usize) -> Self {
        Self { values: vec![0.0; count], gradient: vec![0.0; count], velocity: vec![0.0; count] }
    }

    /// Initial weights of He et al. for `ReLU`.
    fn random(count: usize, inputs: usize, random: &mut Random) -> Self {
        let deviation = (2.0 / inputs as f32).sqrt();
        Self { values: (0..count).map(|_| deviation * random.normal()).collect(), ..Self::zero(count) }
    }

    /// One step of gradient descent by the gradients of `images` images, with momentum and a little
    /// weight decay.
    pub(crate) fn step(&mut self, step: f32, images: usize) {
        for ((value, gradient), velocity) in self.values.iter_mut().zip(&mut self.gradient).zip(&mut self.velocity) {
            *velocity = 0.9 * *velocity - step * (*gradient / images as f32 + 5e-4 * *value);
            *value += *velocity;
            *gradient = 0.0;
        }
    }
}
