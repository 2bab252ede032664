//! A mixture of experts: OLMoE-1B-7B.

use super::{
    net::{ELEMENT_BYTES, Keeps, Net, Parameter, Value},
    transformer::{Tokens, attend, linear, look_up, norm, through},
};

const WORDS: u64 = 50_304;
const WIDTH: u64 = 2048;
const LAYERS: u64 = 16;
const HEADS: u64 = 16;
const EXPERTS: u64 = 64;
/// For each token.
const CHOSEN: u64 = 8;
const EXPERT_WIDTH: u64 = 1024;
const ROOT_MEAN_SQUARE: &[&str] = &["weight"];

/// The whole network.
pub(super) fn olmoe(net: &mut Net<'_>, batch: u64, length: u64) {
    let ids = net.input("words", batch * length);
    let (mut x, _) = look_up(net, "embedding", ids, (batch, length, WIDTH), WORDS);
    for index in 0..LAYERS {
        let name = format!("layer{index}");
        let inside = norm(net, &format!("{name}.attention.norm"), x, ROOT_MEAN_SQUARE);
        let y = attention(net, &format!("{name}.attention"), inside);
        x.value = net.add(&format!("{name}.attention.add"), x.value, y.value);
        let inside = norm(net, &format!("{name}.experts.norm"), x, ROOT_MEAN_SQUARE);
        let y = mixture(net, &format!("{name}.experts"), inside);
        x.value = net.add(&format!("{name}.experts.add"), x.value, y);
    }
    x = norm(net, "norm", x, ROOT_MEAN_SQUARE);
    let logits = linear(net, "head", x, WORDS, false);
    let labels = net.input("labels", batch * length);
    net.loss("loss", logits.value, labels);
}

fn attention(net: &mut Net<'_>, name: &str, x: Tokens) -> Tokens {
    let [q, k, v] = ["query", "key", "value"].map(|part| linear(net, &format!("{name}.{part}"), x, WIDTH, false));
    // Queries and keys are normalized, then turned by their positions.
    let [q, k] = [("query", q), ("key", k)].map(|(part, x)| {
        let x = norm(net, &format!("{name}.{part}.norm"), x, ROOT_MEAN_SQUARE);
        let turned =
            net.pointwise(&format!("{name}.{part}.rotary"), &[x.value], &[], (x.elements(), 4), Keeps::default());
        Tokens { value: turned, ..x }
    });
    let context = attend(net, name, [q, k, v], HEADS, false);
    linear(net, &format!("{name}.output"), context, WIDTH, false)
}

/// A router sends each token to some experts, each of which gets as many; what they say is added up by the router's weights.
fn mixture(net: &mut Net<'_>, name: &str, x: Tokens) -> Value {
    let logits = linear(net, &format!("{name}.router"), x, EXPERTS, false);
    let choices = x.rows() * CHOSEN;
    // Weights, and which expert each is for.
    let keeps = Keeps { output: true, extra_bytes: choices * ELEMENT_BYTES, ..Keeps::default() };
    let weights = net.pointwise(&format!("{name}.choose"), &[logits.value], &[], (choices, EXPERTS), keeps);
    let rows = |expert: u64| choices / EXPERTS + u64::from(expert < choices % EXPERTS);
    let taken: Vec<_> = (0..EXPERTS).filter(|&expert| rows(expert) > 0).collect();
    let sizes: Vec<_> = taken.iter().map(|&expert| rows(expert) * WIDTH).collect();
    let parts = net.scatter(&format!("{name}.dispatch"), &[x.value], &sizes);
    // All are there, taken or not.
    let parameters: Vec<_> = (0..EXPERTS).map(|index| Expert::new(net, &format!("{name}.{index}"))).collect();
    let mut said = vec![weights];
    for (&index, value) in taken.iter().zip(parts) {
        let tokens = Tokens { value, batch: 1, length: rows(index), width: WIDTH };
        let expert = usize::try_from(index).ok().and_then(|index| parameters.get(index));
        said.extend(expert.map(|expert| expert.say(net, tokens)));
    }
    // The way back needs the weights and what was said.
    let keeps = Keeps { inputs: true, ..Keeps::default() };
    net.pointwise(&format!("{name}.combine"), &said, &[], (x.elements(), 2 * CHOSEN), keeps)
}

struct Expert {
    name: String,
    gate: Parameter,
    up: Parameter,
    down: Parameter,
}

impl Expert {
    fn new(net: &mut Net<'_>, name: &str) -> Self {
        let [gate, up, down] =
            ["gate", "up", "down"].map(|part| net.parameter(&format!("{name}.{part}.weight"), WIDTH * EXPERT_WIDTH));
        Self { name: name.to_owned(), gate, up, down }
    }

    fn say(&self, net: &mut Net<'_>, x: Tokens) -> Value {
        let Self { name, gate, up, down } = self;
        let [gate, up] = [("gate", gate), ("up", up)]
            .map(|(part, &weight)| through(net, &format!("{name}.{part}"), x, EXPERT_WIDTH, &[weight]));
        let keeps = Keeps { inputs: true, ..Keeps::default() };
        let (work, swiglu) = ((gate.elements(), 8), format!("{name}.swiglu"));
        let inner = net.pointwise(&swiglu, &[gate.value, up.value], &[], work, keeps);
        through(net, &format!("{name}.down"), Tokens { value: inner, ..gate }, WIDTH, &[*down]).value
    }
}
