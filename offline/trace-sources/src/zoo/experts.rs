//! Mixture of experts: OLMoE-1B-7B.

use super::{
    net::{ELEMENT_BYTES, Net, Parameter, Saved, Value},
    transformer::{Tokens, attend, embed, linear, norm, project},
};

const VOCABULARY: u64 = 50_304;
const WIDTH: u64 = 2048;
const LAYERS: u64 = 16;
const HEADS: u64 = 16;
const EXPERTS: u64 = 64;
/// Number of experts for each token.
const EXPERTS_PER_TOKEN: u64 = 8;
const EXPERT_WIDTH: u64 = 1024;
const ROOT_MEAN_SQUARE: &[&str] = &["weight"];

/// OLMoE-1B-7B.
pub(super) fn olmoe(net: &mut Net<'_>, batch: u64, length: u64) {
    let ids = net.input("words", batch * length);
    let (mut x, _) = embed(net, "embedding", ids, (batch, length, WIDTH), VOCABULARY);
    for index in 0..LAYERS {
        let name = format!("layer{index}");
        let normalized = norm(net, &format!("{name}.attention.norm"), x, ROOT_MEAN_SQUARE);
        let y = attention(net, &format!("{name}.attention"), normalized);
        x.value = net.add(&format!("{name}.attention.add"), x.value, y.value);
        let normalized = norm(net, &format!("{name}.experts.norm"), x, ROOT_MEAN_SQUARE);
        let y = mixture(net, &format!("{name}.experts"), normalized);
        x.value = net.add(&format!("{name}.experts.add"), x.value, y);
    }
    x = norm(net, "norm", x, ROOT_MEAN_SQUARE);
    let logits = linear(net, "head", x, VOCABULARY, false);
    let labels = net.input("labels", batch * length);
    net.loss("loss", logits.value, labels);
}

fn attention(net: &mut Net<'_>, name: &str, x: Tokens) -> Tokens {
    let [q, k, v] = ["query", "key", "value"].map(|part| linear(net, &format!("{name}.{part}"), x, WIDTH, false));
    // Queries and keys are normalized, then rotated by position.
    let [q, k] = [("query", q), ("key", k)].map(|(part, x)| {
        let x = norm(net, &format!("{name}.{part}.norm"), x, ROOT_MEAN_SQUARE);
        let rotated =
            net.pointwise(&format!("{name}.{part}.rotary"), &[x.value], &[], (x.elements(), 4), Saved::default());
        Tokens { value: rotated, ..x }
    });
    let context = attend(net, name, [q, k, v], HEADS, false);
    linear(net, &format!("{name}.output"), context, WIDTH, false)
}

/// Mixture layer. A router sends each token to [`EXPERTS_PER_TOKEN`] experts, with an equal number
/// of tokens for each expert, and sums their outputs by its weights.
fn mixture(net: &mut Net<'_>, name: &str, x: Tokens) -> Value {
    let logits = linear(net, &format!("{name}.router"), x, EXPERTS, false);
    let choices = x.rows() * EXPERTS_PER_TOKEN;
    // The saved tensors are the weights and the indices of the chosen experts.
    let saves = Saved { output: true, extra_bytes: choices * ELEMENT_BYTES, ..Saved::default() };
    let weights = net.pointwise(&format!("{name}.choose"), &[logits.value], &[], (choices, EXPERTS), saves);
    let rows = |expert: u64| choices / EXPERTS + u64::from(expert < choices % EXPERTS);
    let active: Vec<_> = (0..EXPERTS).filter(|&expert| rows(expert) > 0).collect();
    let sizes: Vec<_> = active.iter().map(|&expert| rows(expert) * WIDTH).collect();
    let parts = net.scatter(&format!("{name}.dispatch"), &[x.value], &sizes);
    // All experts have parameters, active or not.
    let parameters: Vec<_> = (0..EXPERTS).map(|index| Expert::new(net, &format!("{name}.{index}"))).collect();
    let mut combine_inputs = vec![weights];
    for (&index, value) in active.iter().zip(parts) {
        let tokens = Tokens { value, batch: 1, length: rows(index), width: WIDTH };
        let expert = usize::try_from(index).ok().and_then(|index| parameters.get(index));
        combine_inputs.extend(expert.map(|expert| expert.forward(net, tokens)));
    }
    // The backward pass needs the weights and the outputs of the experts.
    let saves = Saved { inputs: true, ..Saved::default() };
    net.pointwise(&format!("{name}.combine"), &combine_inputs, &[], (x.elements(), 2 * EXPERTS_PER_TOKEN), saves)
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

    fn forward(&self, net: &mut Net<'_>, x: Tokens) -> Value {
        let Self { name, gate, up, down } = self;
        let [gate, up] = [("gate", gate), ("up", up)]
            .map(|(part, &weight)| project(net, &format!("{name}.{part}"), x, EXPERT_WIDTH, &[weight]));
        let saves = Saved { inputs: true, ..Saved::default() };
        let (work, swiglu) = ((gate.elements(), 8), format!("{name}.swiglu"));
        let inner = net.pointwise(&swiglu, &[gate.value, up.value], &[], work, saves);
        project(net, &format!("{name}.down"), Tokens { value: inner, ..gate }, WIDTH, &[*down]).value
    }
}
