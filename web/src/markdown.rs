//! Text of generated documents.

use textwrap::{Options, WordSplitter};

/// A paragraph in lines of at most 100 columns, words whole.
pub(crate) fn paragraph(text: &str) -> String {
    textwrap::fill(text, Options::new(100).word_splitter(WordSplitter::NoHyphenation).break_words(false))
}
