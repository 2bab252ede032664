//! Convolutional networks: ResNet and VGG, on images of 224 by 224, 1,000 classes.

use super::net::{Net, Saved, Value};

const CLASSES: u64 = 1000;

/// Batch of square images or feature maps, with channels.
#[derive(Clone, Copy)]
struct Images {
    value: Value,
    batch: u64,
    channels: u64,
    side: u64,
}

impl Images {
    fn elements(&self) -> u64 {
        self.batch * self.channels * self.side * self.side
    }
}

/// Window of a convolution or pooling.
#[derive(Clone, Copy)]
struct Window {
    side: u64,
    stride: u64,
}

fn images(net: &mut Net<'_>, batch: u64) -> Images {
    let (channels, side) = (3, 224);
    let value = net.input("images", batch * channels * side * side);
    Images { value, batch, channels, side }
}

fn convolution(net: &mut Net<'_>, name: &str, x: Images, channels: u64, window: Window, bias: bool) -> Images {
    let taps = x.channels * window.side * window.side;
    let mut parameters = vec![net.parameter(&format!("{name}.weight"), channels * taps)];
    if bias {
        parameters.push(net.parameter(&format!("{name}.bias"), channels));
    }
    let mut y = Images { channels, side: x.side.div_ceil(window.stride), ..x };
    y.value = net.linear(name, x.value, &parameters, y.elements(), y.elements() * taps);
    y
}

/// Batch normalization. It saves its input, and a mean and a variance for each channel.
fn normalization(net: &mut Net<'_>, name: &str, x: Images) -> Images {
    let parameters = [".weight", ".bias"].map(|end| net.parameter(&format!("{name}{end}"), x.channels));
    let saves = Saved { inputs: true, extra_bytes: 2 * x.channels * super::net::ELEMENT_BYTES, ..Saved::default() };
    Images { value: net.pointwise(name, &[x.value], &parameters, (x.elements(), 8), saves), ..x }
}

fn relu(net: &mut Net<'_>, name: &str, x: Images) -> Images {
    Images { value: net.relu(name, x.value), ..x }
}

/// Maximum of each window; its position is saved for the backward pass.
fn max_pool(net: &mut Net<'_>, name: &str, x: Images, window: Window) -> Images {
    let mut y = Images { side: x.side / window.stride, ..x };
    let saves = Saved { extra_bytes: y.elements() * 8, ..Saved::default() };
    y.value = net.pointwise(name, &[x.value], &[], (y.elements(), window.side * window.side), saves);
    y
}

fn fully_connected(net: &mut Net<'_>, name: &str, x: Value, batch: u64, inputs: u64, outputs: u64) -> Value {
    let parameters = [(".weight", inputs * outputs), (".bias", outputs)];
    let parameters = parameters.map(|(end, elements)| net.parameter(&format!("{name}{end}"), elements));
    net.linear(name, x, &parameters, batch * outputs, batch * inputs * outputs)
}

fn classify(net: &mut Net<'_>, logits: Value, batch: u64) {
    let labels = net.input("labels", batch);
    net.loss("loss", logits, labels);
}

/// ResNet with `blocks` bottlenecks in each of its four stages.
pub(super) fn resnet(net: &mut Net<'_>, batch: u64, blocks: [u64; 4]) {
    const WIDTHS: [u64; 4] = [64, 128, 256, 512];
    let x = images(net, batch);
    let x = convolution(net, "conv1", x, 64, Window { side: 7, stride: 2 }, false);
    let x = normalization(net, "bn1", x);
    let x = relu(net, "relu1", x);
    let mut x = max_pool(net, "maxpool", x, Window { side: 3, stride: 2 });
    for (stage, (width, blocks)) in WIDTHS.into_iter().zip(blocks).enumerate() {
        for block in 0..blocks {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            x = bottleneck(net, &format!("layer{}.{block}", stage + 1), x, width, stride);
        }
    }
    let features = batch * x.channels;
    let pooled = net.pointwise("avgpool", &[x.value], &[], (features, x.side * x.side), Saved::default());
    let logits = fully_connected(net, "fc", pooled, batch, x.channels, CLASSES);
    classify(net, logits, batch);
}

fn bottleneck(net: &mut Net<'_>, name: &str, x: Images, width: u64, stride: u64) -> Images {
    const EXPANSION: u64 = 4;
    let one = Window { side: 1, stride: 1 };
    let mut y = x;
    let convolutions = [(width, one), (width, Window { side: 3, stride }), (width * EXPANSION, one)];
    for (index, (channels, window)) in (1..).zip(convolutions) {
        y = convolution(net, &format!("{name}.conv{index}"), y, channels, window, false);
        y = normalization(net, &format!("{name}.bn{index}"), y);
        if index < 3 {
            y = relu(net, &format!("{name}.relu{index}"), y);
        }
    }
    let mut shortcut = x;
    if x.channels != y.channels {
        shortcut = convolution(net, &format!("{name}.downsample"), x, y.channels, Window { side: 1, stride }, false);
        shortcut = normalization(net, &format!("{name}.downsample.bn"), shortcut);
    }
    y.value = net.add(&format!("{name}.add"), y.value, shortcut.value);
    relu(net, &format!("{name}.relu3"), y)
}

/// VGG-16.
pub(super) fn vgg(net: &mut Net<'_>, batch: u64) {
    const STAGES: [(u64, u64); 5] = [(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)];
    let mut x = images(net, batch);
    for (stage, (convolutions, channels)) in (1..).zip(STAGES) {
        for index in 1..=convolutions {
            let window = Window { side: 3, stride: 1 };
            x = convolution(net, &format!("conv{stage}.{index}"), x, channels, window, true);
            x = relu(net, &format!("relu{stage}.{index}"), x);
        }
        x = max_pool(net, &format!("pool{stage}"), x, Window { side: 2, stride: 2 });
    }
    let (mut y, mut features) = (x.value, x.channels * x.side * x.side);
    for name in ["fc1", "fc2"] {
        const WIDTH: u64 = 4096;
        y = fully_connected(net, name, y, batch, features, WIDTH);
        y = net.relu(&format!("{name}.relu"), y);
        // The mask has a byte for each element.
        let saves = Saved { extra_bytes: batch * WIDTH, ..Saved::default() };
        y = net.pointwise(&format!("{name}.dropout"), &[y], &[], (batch * WIDTH, 2), saves);
        features = WIDTH;
    }
    let logits = fully_connected(net, "fc3", y, batch, features, CLASSES);
    classify(net, logits, batch);
}
