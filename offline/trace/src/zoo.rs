//! Traces of our own making: one training step of a well-known network at any batch size, with kernel times from a roofline.
//!
//! * [`hardware`]: what a GPU can do, from a file with the source of each figure
//! * `net`: from layers to kernels: forward, backward, optimizer
//! * `convolutional`, `transformer`, `experts`: the networks
//!
//! All elements have 4 bytes, as in training with TF32. Operators are those of a framework that runs them one by one: attention writes its scores, a
//! normalization keeps its input, nothing is computed again, and no kernel has a workspace. A kernel takes as long as its arithmetic or its bytes at the
//! GPU's peak rates, whichever is longer: less than on any real one, so that transfers are harder to hide than they are, never easier.

mod convolutional;
mod experts;
pub mod hardware;
mod net;
mod transformer;

use std::{fmt, str::FromStr};

pub use hardware::Hardware;
use thiserror::Error;

use crate::{
    draft::{Draft, Invalid},
    iteration::Iteration,
};
use net::Net;

/// A network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Model {
    /// ResNet-50 on images of 224 by 224.
    ResNet50,
    /// ResNet-152 on images of 224 by 224.
    ResNet152,
    /// VGG-16 on images of 224 by 224.
    Vgg16,
    /// BERT-base, pre-training on both of its tasks.
    Bert,
    /// GPT-2 small.
    Gpt,
    /// ViT-B/16 on images of 224 by 224.
    Vit,
    /// OLMoE-1B-7B: 64 experts in each of 16 layers, 8 of them for each token. Tokens are spread evenly.
    Moe,
}

impl Model {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::ResNet50, Self::ResNet152, Self::Vgg16, Self::Bert, Self::Gpt, Self::Vit, Self::Moe];

    /// What it is called in a [`Recipe`].
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ResNet50 => "resnet50",
            Self::ResNet152 => "resnet152",
            Self::Vgg16 => "vgg16",
            Self::Bert => "bert",
            Self::Gpt => "gpt",
            Self::Vit => "vit",
            Self::Moe => "moe",
        }
    }

    /// Tokens of a sequence, unless others are asked for; `None` for networks that take images.
    #[must_use]
    pub fn sequence(self) -> Option<u64> {
        match self {
            Self::Bert => Some(128),
            Self::Gpt => Some(1024),
            Self::Moe => Some(4096),
            Self::ResNet50 | Self::ResNet152 | Self::Vgg16 | Self::Vit => None,
        }
    }
}

/// What to make: `MODEL:BATCH`, or `MODEL:BATCHxTOKENS` for sequences of so many tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Recipe {
    /// Which network.
    pub model: Model,
    /// Images or sequences in a batch.
    pub batch: u64,
    /// Tokens of a sequence.
    pub sequence: Option<u64>,
}

/// Why a recipe makes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum Unmakable {
    #[error("{text:?} is no MODEL:BATCH or MODEL:BATCHxTOKENS, such as bert:256 or gpt:8x1024")]
    Form { text: String },
    #[error("no model {name:?}: there are {}", Model::ALL.map(Model::name).join(", "))]
    Model { name: String },
    #[error("{what} is {value}, and may be 1 to {most}")]
    Size { what: &'static str, value: u64, most: u64 },
    #[error("{} takes images, not sequences", model.name())]
    NoSequences { model: Model },
    #[error(transparent)]
    Iteration(#[from] Invalid),
}

impl Recipe {
    const MOST_BATCH: u64 = 1 << 20;
    /// Of a batch. With these, no size comes near 64 bits.
    const MOST_TOKENS: u64 = 1 << 24;

    /// What a network has positions for, where it has.
    fn longest_sequence(model: Model) -> u64 {
        match model {
            Model::Bert => 512,
            Model::Gpt => 1024,
            _ => 1 << 17,
        }
    }

    /// A recipe, if it can be made.
    ///
    /// # Errors
    /// If a size is zero or too large, or the network takes no sequences.
    pub fn new(model: Model, batch: u64, sequence: Option<u64>) -> Result<Self, Unmakable> {
        let within = |what, value, most| {
            if (1..=most).contains(&value) { Ok(()) } else { Err(Unmakable::Size { what, value, most }) }
        };
        within("the batch", batch, Self::MOST_BATCH)?;
        if let Some(tokens) = sequence {
            if model.sequence().is_none() {
                return Err(Unmakable::NoSequences { model });
            }
            within("the sequence", tokens, Self::longest_sequence(model))?;
        }
        let sequence = sequence.or(model.sequence());
        within("the number of tokens", batch * sequence.unwrap_or(1), Self::MOST_TOKENS)?;
        Ok(Self { model, batch, sequence })
    }

    /// One training step on a GPU.
    ///
    /// # Errors
    /// If it holds more than 64 bits of bytes.
    pub fn make(&self, hardware: &Hardware) -> Result<Iteration, Unmakable> {
        Ok(self.draft(hardware).check()?)
    }

    fn draft(&self, hardware: &Hardware) -> Draft {
        let mut net = Net::new(hardware, format!("{self} on {}", hardware.name));
        let tokens = self.sequence.unwrap_or(1);
        match self.model {
            Model::ResNet50 => convolutional::resnet(&mut net, self.batch, [3, 4, 6, 3]),
            Model::ResNet152 => convolutional::resnet(&mut net, self.batch, [3, 8, 36, 3]),
            Model::Vgg16 => convolutional::vgg(&mut net, self.batch),
            Model::Bert => transformer::bert(&mut net, self.batch, tokens),
            Model::Gpt => transformer::gpt(&mut net, self.batch, tokens),
            Model::Vit => transformer::vit(&mut net, self.batch),
            Model::Moe => experts::olmoe(&mut net, self.batch, tokens),
        }
        let states = match self.model {
            // Momentum.
            Model::ResNet50 | Model::ResNet152 | Model::Vgg16 => 1,
            // Adam's mean and variance.
            Model::Bert | Model::Gpt | Model::Vit | Model::Moe => 2,
        };
        net.finish(states)
    }
}

impl FromStr for Recipe {
    type Err = Unmakable;

    fn from_str(text: &str) -> Result<Self, Unmakable> {
        let form = || Unmakable::Form { text: text.chars().take(40).collect() };
        let (name, sizes) = text.split_once(':').ok_or_else(form)?;
        let model = Model::ALL.into_iter().find(|model| model.name() == name);
        let model = model.ok_or_else(|| Unmakable::Model { name: name.chars().take(40).collect() })?;
        let (batch, sequence) = match sizes.split_once('x') {
            Some((batch, tokens)) => (batch, Some(tokens.parse().map_err(|_| form())?)),
            None => (sizes, None),
        };
        Self::new(model, batch.parse().map_err(|_| form())?, sequence)
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.model.name(), self.batch)?;
        match self.sequence {
            Some(tokens) => write!(f, "x{tokens}"),
            None => Ok(()),
        }
    }
}
