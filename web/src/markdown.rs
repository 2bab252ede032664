//! Text of generated documents.

use textwrap::{Options, WordSplitter};

/// Paragraph in lines of at most 100 columns, without splitting words.
pub(crate) fn paragraph(text: &str) -> String {
    textwrap::fill(text, Options::new(100).word_splitter(WordSplitter::NoHyphenation).break_words(false))
}
