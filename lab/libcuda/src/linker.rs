//! Linking of PTX texts to an image, which here is the texts behind a magic.

use std::sync::{Mutex, PoisonError};

use crate::handle::Handle;

/// First bytes of an image that the linker made.
pub(crate) const MAGIC: [u8; 8] = *b"\x7fPTXLAB1";
/// Bytes before the texts: magic, and bytes of all.
pub(crate) const HEADER_BYTES: usize = 16;

/// Options of the compiler, as a program has passed them: their number, and addresses of names and
/// values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Number.
    pub(crate) count: usize,
    /// Address of the names.
    pub(crate) names: usize,
    /// Address of the values.
    pub(crate) values: usize,
}

/// Link in progress.
#[derive(Debug)]
pub(crate) struct Link {
    /// Handle.
    pub(crate) handle: Handle,
    /// Options of `cuLinkCreate`, whose logs are written until it is destroyed.
    pub(crate) options: Options,
    /// Texts added so far.
    texts: Mutex<Vec<String>>,
    /// Image, once complete; never moved until the link is destroyed.
    image: Mutex<Option<Box<[u8]>>>,
}

impl Link {
    /// Link of nothing.
    pub(crate) fn new(handle: Handle, options: Options) -> Self {
        Self { handle, options, texts: Mutex::default(), image: Mutex::default() }
    }

    /// Adds texts.
    pub(crate) fn add(&self, texts: Vec<String>) {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner).extend(texts);
    }

    /// Texts added so far.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.texts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Makes the image; returns its address and length.
    pub(crate) fn complete(&self) -> (*const u8, usize) {
        let mut image = self.image.lock().unwrap_or_else(PoisonError::into_inner);
        let image = image.get_or_insert_with(|| encode(&self.texts()).into_boxed_slice());
        (image.as_ptr(), image.len())
    }
}

/// Image of texts.
pub(crate) fn encode(texts: &[String]) -> Vec<u8> {
    let body: Vec<u8> =
        texts.iter().flat_map(|text| (text.len() as u64).to_le_bytes().into_iter().chain(text.bytes())).collect();
    let total = (HEADER_BYTES + body.len()) as u64;
    MAGIC.into_iter().chain(total.to_le_bytes()).chain(body).collect()
}

/// Texts of an image without its header.
pub(crate) fn decode(mut body: &[u8]) -> Option<Vec<String>> {
    let mut texts = Vec::new();
    while let Some((length, rest)) = body.split_first_chunk::<8>() {
        let (text, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        texts.push(String::from_utf8(text.to_vec()).ok()?);
        body = rest;
    }
    body.is_empty().then_some(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_its_texts() {
        let texts = ["first".to_owned(), String::new(), "third".to_owned()];
        let image = encode(&texts);
        assert_eq!(u64::from_le_bytes(image[8..16].try_into().unwrap()), image.len() as u64);
        assert_eq!(decode(&image[HEADER_BYTES..]).unwrap(), texts);
        assert_eq!(decode(&image[HEADER_BYTES..image.len() - 1]), None);
    }
}
