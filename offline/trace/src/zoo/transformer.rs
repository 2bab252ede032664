//! Transformers: BERT, GPT-2 and ViT, and the parts that others are made of.

use super::net::{ELEMENT_BYTES, Keeps, Net, Parameter, Value};

/// Rows of tokens on their way.
#[derive(Clone, Copy)]
pub(super) struct Tokens {
    pub(super) value: Value,
    pub(super) batch: u64,
    pub(super) length: u64,
    pub(super) width: u64,
}

impl Tokens {
    pub(super) fn rows(&self) -> u64 {
        self.batch * self.length
    }

    pub(super) fn elements(&self) -> u64 {
        self.rows() * self.width
    }
}

/// What all layers of these networks have alike.
#[derive(Clone, Copy)]
struct Kind {
    heads: u64,
    /// Normalizes before attention and after, as GPT-2 and ViT do; BERT does after each sum.
    norm_first: bool,
    dropout: bool,
}

const WIDTH: u64 = 768;
const LAYERS: u64 = 12;
const HEADS: u64 = 12;

pub(super) fn linear(net: &mut Net<'_>, name: &str, x: Tokens, width: u64, bias: bool) -> Tokens {
    let mut parameters = vec![net.parameter(&format!("{name}.weight"), x.width * width)];
    if bias {
        parameters.push(net.parameter(&format!("{name}.bias"), width));
    }
    through(net, name, x, width, &parameters)
}

pub(super) fn through(net: &mut Net<'_>, name: &str, x: Tokens, width: u64, parameters: &[Parameter]) -> Tokens {
    let elements = x.rows() * width;
    Tokens { value: net.linear(name, x.value, parameters, elements, elements * x.width), width, ..x }
}

/// Layer normalization, or with one parameter that of the root mean square. A mean and a variance, or that alone, are kept for each row.
pub(super) fn norm(net: &mut Net<'_>, name: &str, x: Tokens, parameters: &[&str]) -> Tokens {
    let parameters: Vec<_> = parameters.iter().map(|end| net.parameter(&format!("{name}.{end}"), x.width)).collect();
    let extra_bytes = x.rows() * ELEMENT_BYTES * parameters.len() as u64;
    let keeps = Keeps { inputs: true, extra_bytes, ..Keeps::default() };
    Tokens { value: net.pointwise(name, &[x.value], &parameters, (x.elements(), 8), keeps), ..x }
}

fn layer_norm(net: &mut Net<'_>, name: &str, x: Tokens) -> Tokens {
    norm(net, name, x, &["weight", "bias"])
}

/// A byte of mask is kept for each element.
fn dropout(net: &mut Net<'_>, name: &str, value: Value, elements: u64) -> Value {
    let keeps = Keeps { extra_bytes: elements, ..Keeps::default() };
    net.pointwise(name, &[value], &[], (elements, 2), keeps)
}

/// From queries, keys and values of so many heads to what each token takes from the others.
pub(super) fn attend(net: &mut Net<'_>, name: &str, [q, k, v]: [Tokens; 3], heads: u64, drops: bool) -> Tokens {
    let scores = q.batch * heads * q.length * q.length;
    let multiplications = q.batch * q.length * q.length * q.width;
    let mut weights = net.product(&format!("{name}.scores"), q.value, k.value, scores, multiplications);
    let keeps = Keeps { output: true, ..Keeps::default() };
    weights = net.pointwise(&format!("{name}.softmax"), &[weights], &[], (scores, 5), keeps);
    if drops {
        weights = dropout(net, &format!("{name}.dropout"), weights, scores);
    }
    Tokens { value: net.product(&format!("{name}.context"), weights, v.value, q.elements(), multiplications), ..q }
}

fn attention(net: &mut Net<'_>, name: &str, x: Tokens, kind: Kind) -> Tokens {
    let parts = ["query", "key", "value"].map(|part| linear(net, &format!("{name}.{part}"), x, x.width, true));
    let context = attend(net, name, parts, kind.heads, kind.dropout);
    let mut y = linear(net, &format!("{name}.output"), context, x.width, true);
    if kind.dropout {
        y.value = dropout(net, &format!("{name}.output.dropout"), y.value, y.elements());
    }
    y
}

/// Keeps its input.
fn gelu(net: &mut Net<'_>, name: &str, x: Tokens) -> Tokens {
    let keeps = Keeps { inputs: true, ..Keeps::default() };
    Tokens { value: net.pointwise(name, &[x.value], &[], (x.elements(), 10), keeps), ..x }
}

fn feed_forward(net: &mut Net<'_>, name: &str, x: Tokens, kind: Kind) -> Tokens {
    const WIDENED: u64 = 4;
    let y = linear(net, &format!("{name}.up"), x, x.width * WIDENED, true);
    let y = gelu(net, &format!("{name}.gelu"), y);
    let mut y = linear(net, &format!("{name}.down"), y, x.width, true);
    if kind.dropout {
        y.value = dropout(net, &format!("{name}.dropout"), y.value, y.elements());
    }
    y
}

fn layer(net: &mut Net<'_>, name: &str, mut x: Tokens, kind: Kind) -> Tokens {
    type Part = fn(&mut Net<'_>, &str, Tokens, Kind) -> Tokens;
    let parts: [(&str, Part); 2] = [("attention", attention), ("mlp", feed_forward)];
    for (part, run) in parts {
        let name = format!("{name}.{part}");
        let norm = format!("{name}.norm");
        let inside = if kind.norm_first { layer_norm(net, &norm, x) } else { x };
        let y = run(net, &name, inside, kind);
        x.value = net.add(&format!("{name}.add"), x.value, y.value);
        if !kind.norm_first {
            x = layer_norm(net, &norm, x);
        }
    }
    x
}

fn layers(net: &mut Net<'_>, mut x: Tokens, kind: Kind) -> Tokens {
    for index in 0..LAYERS {
        x = layer(net, &format!("layer{index}"), x, kind);
    }
    x
}

/// Looks rows up in a table of so many.
pub(super) fn look_up(net: &mut Net<'_>, name: &str, ids: Value, x: (u64, u64, u64), rows: u64) -> (Tokens, Parameter) {
    let (batch, length, width) = x;
    let table = net.parameter(&format!("{name}.weight"), rows * width);
    let value = net.embedding(name, ids, table, batch * length * width);
    (Tokens { value, batch, length, width }, table)
}

/// BERT-base with both of its heads: masked words, on every token, and whether the second sentence follows the first.
pub(super) fn bert(net: &mut Net<'_>, batch: u64, length: u64) {
    const WORDS: u64 = 30_522;
    const POSITIONS: u64 = 512;
    const SENTENCES: u64 = 2;
    let kind = Kind { heads: HEADS, norm_first: false, dropout: true };
    let rows = batch * length;
    let shape = (batch, length, WIDTH);
    let ids = ["words", "positions", "sentences"].map(|name| net.input(name, rows));
    let tables = [("embedding.word", WORDS), ("embedding.position", POSITIONS), ("embedding.sentence", SENTENCES)];
    let mut looked_up = ids.into_iter().zip(tables).map(|(ids, (name, rows))| look_up(net, name, ids, shape, rows));
    let (Some((mut x, words)), Some((positions, _)), Some((sentences, _))) =
        (looked_up.next(), looked_up.next(), looked_up.next())
    else {
        return;
    };
    drop(looked_up);
    for (name, part) in [("embedding.add_position", positions), ("embedding.add_sentence", sentences)] {
        x.value = net.add(name, x.value, part.value);
    }
    x = layer_norm(net, "embedding.norm", x);
    x.value = dropout(net, "embedding.dropout", x.value, x.elements());
    x = layers(net, x, kind);

    let keeps = Keeps::default();
    let first = net.pointwise("pooler.first", &[x.value], &[], (batch * WIDTH, 1), keeps);
    let first = linear(net, "pooler", Tokens { value: first, batch, length: 1, width: WIDTH }, WIDTH, true);
    let keeps = Keeps { output: true, ..keeps };
    let pooled = net.pointwise("pooler.tanh", &[first.value], &[], (batch * WIDTH, 10), keeps);
    let follows = linear(net, "next_sentence", Tokens { value: pooled, ..first }, SENTENCES, true);

    let y = linear(net, "masked.transform", x, WIDTH, true);
    let y = gelu(net, "masked.gelu", y);
    let y = layer_norm(net, "masked.norm", y);
    let bias = net.parameter("masked.bias", WORDS);
    let logits = through(net, "masked.decoder", y, WORDS, &[words, bias]);
    let labels = net.input("labels", rows);
    net.loss("masked.loss", logits.value, labels);
    let labels = net.input("next_sentence.labels", batch);
    net.loss("next_sentence.loss", follows.value, labels);
}

/// GPT-2 small; the table of words is its last layer too.
pub(super) fn gpt(net: &mut Net<'_>, batch: u64, length: u64) {
    const WORDS: u64 = 50_257;
    const POSITIONS: u64 = 1024;
    let kind = Kind { heads: HEADS, norm_first: true, dropout: true };
    let ids = ["words", "positions"].map(|name| net.input(name, batch * length));
    let [words, positions] = ids;
    let (mut x, table) = look_up(net, "embedding.word", words, (batch, length, WIDTH), WORDS);
    let (position, _) = look_up(net, "embedding.position", positions, (batch, length, WIDTH), POSITIONS);
    x.value = net.add("embedding.add", x.value, position.value);
    x.value = dropout(net, "embedding.dropout", x.value, x.elements());
    x = layers(net, x, kind);
    x = layer_norm(net, "norm", x);
    let logits = through(net, "head", x, WORDS, &[table]);
    let labels = net.input("labels", batch * length);
    net.loss("loss", logits.value, labels);
}

/// ViT-B/16: patches of 16 by 16 of an image of 224 by 224, and one token for its class.
pub(super) fn vit(net: &mut Net<'_>, batch: u64) {
    const PATCHES: u64 = 14 * 14;
    const PATCH: u64 = 3 * 16 * 16;
    const CLASSES: u64 = 1000;
    let kind = Kind { heads: HEADS, norm_first: true, dropout: false };
    let images = net.input("images", batch * PATCHES * PATCH);
    let pixels = Tokens { value: images, batch, length: PATCHES, width: PATCH };
    let patches = linear(net, "patches", pixels, WIDTH, true);
    let class = net.parameter("class", WIDTH);
    let position = net.parameter("position", (PATCHES + 1) * WIDTH);
    let mut x = Tokens { length: PATCHES + 1, ..patches };
    x.value = net.pointwise("tokens", &[patches.value], &[class, position], (x.elements(), 1), Keeps::default());
    x = layers(net, x, kind);
    x = layer_norm(net, "norm", x);
    let first = net.pointwise("first", &[x.value], &[], (batch * WIDTH, 1), Keeps::default());
    let logits = linear(net, "head", Tokens { value: first, length: 1, ..x }, CLASSES, true);
    let labels = net.input("labels", batch);
    net.loss("loss", logits.value, labels);
}
