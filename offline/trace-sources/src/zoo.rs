//! Generated traces: one training step of a well-known network at any batch size, with kernel times
//! of a roofline.
//!
//! * [`hardware`]: peak rates of GPUs, from a file with the source of each figure
//! * `net`: conversion of layers to kernels: forward, backward, optimizer
//! * `convolutional`, `transformer`, `experts`: the networks
//!
//! All elements have 4 bytes, as in training with TF32. Operators are those of a framework that
//! runs them one by one. Attention writes its scores, a normalization saves its input, nothing is
//! recomputed, and no kernel has a workspace. A kernel takes the time of its arithmetic or its
//! bytes at the GPU's peak rates, whichever is longer. This is less than on any real GPU, so
//! transfers are harder to hide than in reality, never easier.

mod convolutional;
mod experts;
pub mod hardware;
mod net;
mod transformer;

use std::{fmt, str::FromStr};

pub use hardware::Hardware;
use thiserror::Error;

use net::Net;
use trace::{
    draft::{Draft, Invalid},
    iteration::Iteration,
};

/// Network.
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
    /// OLMoE-1B-7B: 64 experts in each of 16 layers, 8 of them for each token. Tokens are
    /// distributed evenly.
    Moe,
}

impl Model {
    /// All networks.
    pub const ALL: [Self; 7] =
        [Self::ResNet50, Self::ResNet152, Self::Vgg16, Self::Bert, Self::Gpt, Self::Vit, Self::Moe];

    /// Name in a [`Recipe`].
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

    /// Default number of tokens of a sequence; `None` for networks that take images.
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

/// Parameters of a trace: `MODEL:BATCH`, or `MODEL:BATCHxTOKENS` with the number of tokens of a
/// sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Recipe {
    /// Network.
    pub model: Model,
    /// Images or sequences in a batch.
    pub batch: u64,
    /// Tokens of a sequence; `None` for images.
    pub sequence: Option<u64>,
}

/// Reason why a recipe is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "documented by the messages")]
pub enum RecipeError {
    #[error("invalid recipe {text:?}: expected MODEL:BATCH or MODEL:BATCHxTOKENS, such as bert:256 or gpt:8x1024")]
    Form { text: String },
    #[error("unknown model {name:?}: expected one of {}", Model::ALL.map(Model::name).join(", "))]
    Model { name: String },
    #[error("{quantity} is {value}: expected 1 to {max}")]
    Size { quantity: &'static str, value: u64, max: u64 },
    #[error("{} takes images, not sequences", model.name())]
    NoSequences { model: Model },
    #[error(transparent)]
    Iteration(#[from] Invalid),
}

impl Recipe {
    const MAX_BATCH: u64 = 1 << 20;
    /// Maximum of tokens in a batch. Within these limits, no size comes near 64 bits.
    const MAX_TOKENS: u64 = 1 << 24;

    /// Maximum length of a sequence: the number of positions, if the network has a table of them.
    fn max_sequence(model: Model) -> u64 {
        match model {
            Model::Bert => 512,
            Model::Gpt => 1024,
            _ => 1 << 17,
        }
    }

    /// Validates a recipe.
    ///
    /// # Errors
    /// If a size is 0 or too large, or a length is given for a network that takes images.
    pub fn new(model: Model, batch: u64, sequence: Option<u64>) -> Result<Self, RecipeError> {
        let within = |quantity, value, max| {
            if (1..=max).contains(&value) { Ok(()) } else { Err(RecipeError::Size { quantity, value, max }) }
        };
        within("the batch", batch, Self::MAX_BATCH)?;
        if let Some(tokens) = sequence {
            if model.sequence().is_none() {
                return Err(RecipeError::NoSequences { model });
            }
            within("the sequence", tokens, Self::max_sequence(model))?;
        }
        let sequence = sequence.or(model.sequence());
        within("the number of tokens", batch * sequence.unwrap_or(1), Self::MAX_TOKENS)?;
        Ok(Self { model, batch, sequence })
    }

    /// Generates one training step on a GPU.
    ///
    /// # Errors
    /// If the sum of bytes or durations exceeds [`draft::MAX_TOTAL`](trace::draft::MAX_TOTAL).
    pub fn make(&self, hardware: &Hardware) -> Result<Iteration, RecipeError> {
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
    type Err = RecipeError;

    fn from_str(text: &str) -> Result<Self, RecipeError> {
        let form = || RecipeError::Form { text: text.chars().take(40).collect() };
        let (name, sizes) = text.split_once(':').ok_or_else(form)?;
        let model = Model::ALL.into_iter().find(|model| model.name() == name);
        let model = model.ok_or_else(|| RecipeError::Model { name: name.chars().take(40).collect() })?;
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
