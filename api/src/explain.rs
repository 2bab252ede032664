//! Verdicts in words: a sentence of each, the reason, and remedies. Names in them are as programs chose them: whoever
//! prints them escapes control characters.

mod case;
mod churn;
mod growth;
mod remedies;
mod separation;
pub mod site;
mod unjudged;
mod verdict;

pub use case::Case;
pub use churn::churn;
pub use growth::growth;
pub use remedies::remedies;
pub use separation::separation;
pub use unjudged::unjudged;
pub use verdict::{reason, summary};
