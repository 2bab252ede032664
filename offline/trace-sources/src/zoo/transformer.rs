//! Transformers: BERT, GPT-2 and ViT, and layers shared with other networks.

use super::net::{ELEMENT_BYTES, Net, Parameter, Saved, Value};

/// Batch of sequences of tokens, as rows of `width` elements.
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

/// Configuration of all layers of a network.
#[derive(Clone, Copy)]
struct LayerConfig {
    heads: u64,
    /// Whether normalization precedes attention and the feed-forward part, as in GPT-2 and ViT. In
    /// BERT it follows each sum.
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
    project(net, name, x, width, &parameters)
}

pub(super) fn project(net: &mut Net<'_>, name: &str, x: Tokens, width: u64, parameters: &[Parameter]) -> Tokens {
    let elements = x.rows() * width;
    Tokens { value: net.linear(name, x.value, parameters, elements, elements * x.width), width, ..x }
}

/// Layer normalization, or with one parameter, normalization by the root mean square. It saves a
/// mean and a variance, or the root mean square, for each row.
pub(super) fn norm(net: &mut Net<'_>, name: &str, x: Tokens, parameters: &[&str]) -> Tokens {
    let parameters: Vec<_> = parameters.iter().map(|end| net.parameter(&format!("{name}.{end}"), x.width)).collect();
    let extra_bytes = x.rows() * ELEMENT_BYTES * parameters.len() as u64;
    let saves = Saved { inputs: true, extra_bytes, ..Saved::default() };
    Tokens { value: net.pointwise(name, &[x.value], &parameters, (x.elements(), 8), saves), ..x }
}

fn layer_norm(net: &mut Net<'_>, name: &str, x: Tokens) -> Tokens {
    norm(net, name, x, &["weight", "bias"])
}

/// Dropout. It saves a mask of a byte for each element.
fn dropout(net: &mut Net<'_>, name: &str, value: Value, elements: u64) -> Value {
    let saves = Saved { extra_bytes: elements, ..Saved::default() };
    net.pointwise(name, &[value], &[], (elements, 2), saves)
}

/// Attention from queries, keys and values: the context of each token.
pub(super) fn attend(net: &mut Net<'_>, name: &str, [q, k, v]: [Tokens; 3], heads: u64, with_dropout: bool) -> Tokens {
    let scores = q.batch * heads * q.length * q.length;
    let multiplications = q.batch * q.length * q.length * q.width;
    let mut weights = net.product(&format!("{name}.scores"), q.value, k.value, scores, multiplications);
    let saves = Saved { output: true, ..Saved::default() };
    weights = net.pointwise(&format!("{name}.softmax"), &[weights], &[], (scores, 5), saves);
    if with_dropout {
        weights = dropout(net, &format!("{name}.dropout"), weights, scores);
    }
    Tokens { value: net.product(&format!("{name}.context"), weights, v.value, q.elements(), multiplications), ..q }
}

fn attention(net: &mut Net<'_>, name: &str, x: Tokens, config: LayerConfig) -> Tokens {
    let parts = ["query", "key", "value"].map(|part| linear(net, &format!("{name}.{part}"), x, x.width, true));
    let context = attend(net, name, parts, config.heads, config.dropout);
    let mut y = linear(net, &format!("{name}.output"), context, x.width, true);
    if config.dropout {
        y.value = dropout(net, &format!("{name}.output.dropout"), y.value, y.elements());
    }
    y
}

/// Gaussian error linear unit. It saves its input.
fn gelu(net: &mut Net<'_>, name: &str, x: Tokens) -> Tokens {
    let saves = Saved { inputs: true, ..Saved::default() };
    Tokens { value: net.pointwise(name, &[x.value], &[], (x.elements(), 10), saves), ..x }
}

fn feed_forward(net: &mut Net<'_>, name: &str, x: Tokens, config: LayerConfig) -> Tokens {
    const EXPANSION: u64 = 4;
    let y = linear(net, &format!("{name}.up"), x, x.width * EXPANSION, true);
    let y = gelu(net, &format!("{name}.gelu"), y);
    let mut y = linear(net, &format!("{name}.down"), y, x.width, true);
    if config.dropout {
        y.value = dropout(net, &format!("{name}.dropout"), y.value, y.elements());
    }
    y
}

fn layer(net: &mut Net<'_>, name: &str, mut x: Tokens, config: LayerConfig) -> Tokens {
    type Part = fn(&mut Net<'_>, &str, Tokens, LayerConfig) -> Tokens;
    let parts: [(&str, Part); 2] = [("attention", attention), ("mlp", feed_forward)];
    for (part, run) in parts {
        let name = format!("{name}.{part}");
        let norm = format!("{name}.norm");
        let input = if config.norm_first { layer_norm(net, &norm, x) } else { x };
        let y = run(net, &name, input, config);
        x.value = net.add(&format!("{name}.add"), x.value, y.value);
        if !config.norm_first {
            x = layer_norm(net, &norm, x);
        }
    }
    x
}

fn layers(net: &mut Net<'_>, mut x: Tokens, config: LayerConfig) -> Tokens {
    for index in 0..LAYERS {
        x = layer(net, &format!("layer{index}"), x, config);
    }
    x
}

/// Embedding: looks ids up in a table of `rows` rows.
pub(super) fn embed(net: &mut Net<'_>, name: &str, ids: Value, x: (u64, u64, u64), rows: u64) -> (Tokens, Parameter) {
    let (batch, length, width) = x;
    let table = net.parameter(&format!("{name}.weight"), rows * width);
    let value = net.embedding(name, ids, table, batch * length * width);
    (Tokens { value, batch, length, width }, table)
}

/// BERT-base with both heads: masked words, on every token, and prediction of the next sentence.
pub(super) fn bert(net: &mut Net<'_>, batch: u64, length: u64) {
    const VOCABULARY: u64 = 30_522;
    const POSITIONS: u64 = 512;
    const SENTENCES: u64 = 2;
    let config = LayerConfig { heads: HEADS, norm_first: false, dropout: true };
    let rows = batch * length;
    let shape = (batch, length, WIDTH);
    let ids = ["words", "positions", "sentences"].map(|name| net.input(name, rows));
    let tables = [("embedding.word", VOCABULARY), ("embedding.position", POSITIONS), ("embedding.sentence", SENTENCES)];
    let mut embeddings = ids.into_iter().zip(tables).map(|(ids, (name, rows))| embed(net, name, ids, shape, rows));
    let (Some((mut x, words)), Some((positions, _)), Some((sentences, _))) =
        (embeddings.next(), embeddings.next(), embeddings.next())
    else {
        return;
    };
    drop(embeddings);
    for (name, part) in [("embedding.add_position", positions), ("embedding.add_sentence", sentences)] {
        x.value = net.add(name, x.value, part.value);
    }
    x = layer_norm(net, "embedding.norm", x);
    x.value = dropout(net, "embedding.dropout", x.value, x.elements());
    x = layers(net, x, config);

    let saves = Saved::default();
    let first = net.pointwise("pooler.first", &[x.value], &[], (batch * WIDTH, 1), saves);
    let first = linear(net, "pooler", Tokens { value: first, batch, length: 1, width: WIDTH }, WIDTH, true);
    let saves = Saved { output: true, ..saves };
    let pooled = net.pointwise("pooler.tanh", &[first.value], &[], (batch * WIDTH, 10), saves);
    let next_sentence = linear(net, "next_sentence", Tokens { value: pooled, ..first }, SENTENCES, true);

    let y = linear(net, "masked.transform", x, WIDTH, true);
    let y = gelu(net, "masked.gelu", y);
    let y = layer_norm(net, "masked.norm", y);
    let bias = net.parameter("masked.bias", VOCABULARY);
    let logits = project(net, "masked.decoder", y, VOCABULARY, &[words, bias]);
    let labels = net.input("labels", rows);
    net.loss("masked.loss", logits.value, labels);
    let labels = net.input("next_sentence.labels", batch);
    net.loss("next_sentence.loss", next_sentence.value, labels);
}

/// GPT-2 small. The last layer shares the table of words.
pub(super) fn gpt(net: &mut Net<'_>, batch: u64, length: u64) {
    const VOCABULARY: u64 = 50_257;
    const POSITIONS: u64 = 1024;
    let config = LayerConfig { heads: HEADS, norm_first: true, dropout: true };
    let ids = ["words", "positions"].map(|name| net.input(name, batch * length));
    let [words, positions] = ids;
    let (mut x, table) = embed(net, "embedding.word", words, (batch, length, WIDTH), VOCABULARY);
    let (position, _) = embed(net, "embedding.position", positions, (batch, length, WIDTH), POSITIONS);
    x.value = net.add("embedding.add", x.value, position.value);
    x.value = dropout(net, "embedding.dropout", x.value, x.elements());
    x = layers(net, x, config);
    x = layer_norm(net, "norm", x);
    let logits = project(net, "head", x, VOCABULARY, &[table]);
    let labels = net.input("labels", batch * length);
    net.loss("loss", logits.value, labels);
}

/// ViT-B/16: patches of 16 by 16 of an image of 224 by 224, and one token for the class.
pub(super) fn vit(net: &mut Net<'_>, batch: u64) {
    const PATCHES: u64 = 14 * 14;
    const PATCH: u64 = 3 * 16 * 16;
    const CLASSES: u64 = 1000;
    let config = LayerConfig { heads: HEADS, norm_first: true, dropout: false };
    let images = net.input("images", batch * PATCHES * PATCH);
    let pixels = Tokens { value: images, batch, length: PATCHES, width: PATCH };
    let patches = linear(net, "patches", pixels, WIDTH, true);
    let class = net.parameter("class", WIDTH);
    let position = net.parameter("position", (PATCHES + 1) * WIDTH);
    let mut x = Tokens { length: PATCHES + 1, ..patches };
    x.value = net.pointwise("tokens", &[patches.value], &[class, position], (x.elements(), 1), Saved::default());
    x = layers(net, x, config);
    x = layer_norm(net, "norm", x);
    let first = net.pointwise("first", &[x.value], &[], (batch * WIDTH, 1), Saved::default());
    let logits = linear(net, "head", Tokens { value: first, length: 1, ..x }, CLASSES, true);
    let labels = net.input("labels", batch);
    net.loss("loss", logits.value, labels);
}
