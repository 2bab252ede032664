//! Memory images of the driver's structures, by the table of families, but not by the code that
//! reads it.

use std::collections::BTreeMap;

use serde_json::Value;

/// Names of the families in the table, oldest first.
pub fn families() -> Vec<String> {
    table().into_keys().collect()
}

fn table() -> BTreeMap<String, Value> {
    serde_json::from_str(abi::layout::FAMILIES_JSON).expect("the table is JSON")
}

/// Layout of one family.
#[derive(Clone, Debug)]
pub struct Family {
    name: String,
    values: BTreeMap<String, Value>,
}

impl Family {
    /// Family of the table.
    pub fn named(name: &str) -> Self {
        let values = serde_json::from_value(table()[name]["values"].clone()).expect("values by name");
        Self { name: name.to_owned(), values }
    }

    /// Version of this family.
    pub fn version(&self) -> String {
        table()[&self.name]["representative"].as_str().expect("each has one").to_owned()
    }

    /// Number of the table.
    pub fn number(&self, key: &str) -> usize {
        let number = self.values[key].as_u64().unwrap_or_else(|| panic!("{}/{key} is a number", self.name));
        usize::try_from(number).expect("small")
    }

    /// Id of an event.
    pub fn event(&self, name: &str) -> u32 {
        u32::try_from(self.number(&format!("enum.UVM_PERF_EVENT_{name}"))).expect("small")
    }

    /// Structure of this family, all zero.
    pub fn image(&self, size: &str) -> Image {
        // Rounded up, and at least a word: empty allocations have no address.
        Image { words: vec![0; self.number(size) / 8 + 1], family: self.clone() }
    }
}

/// Memory image of a structure of the driver.
#[derive(Clone, Debug)]
pub struct Image {
    words: Vec<u64>,
    family: Family,
}

impl Image {
    /// Writes a field by its name in the table.
    #[must_use]
    pub fn with<const N: usize>(self, field: &str, bytes: [u8; N]) -> Self {
        let offset = self.family.number(field);
        self.at(offset, bytes)
    }

    /// Writes at an offset.
    #[must_use]
    pub fn at<const N: usize>(mut self, offset: usize, bytes: [u8; N]) -> Self {
        for (at, byte) in bytes.into_iter().enumerate() {
            let at = offset + at;
            let mut word = self.words[at / 8].to_ne_bytes();
            word[at % 8] = byte;
            self.words[at / 8] = u64::from_ne_bytes(word);
        }
        self
    }

    /// Writes one bit.
    #[must_use]
    pub fn with_flag(self, field: &str, value: bool) -> Self {
        let bit = self.family.number(field);
        self.at(bit / 8, [u8::from(value) << (bit % 8)])
    }

    /// Writes a bit field whose entry in the table is `bit:width`. Its neighbours become all ones,
    /// so that a wrong width shows.
    #[must_use]
    pub fn with_bits(mut self, field: &str, value: u32) -> Self {
        let text = self.family.values[field].as_str().expect("bit:width").to_owned();
        let (bit, width) = text.split_once(':').expect("bit:width");
        let (bit, width): (usize, u32) = (bit.parse().expect("a number"), width.parse().expect("a number"));
        let (word, shift) = (bit / 64, u32::try_from(bit % 64).expect("small"));
        // Little-endian: bit n of the structure is bit n % 64 of word n / 64. Only the half that
        // holds the field is filled.
        let half = 0xffff_ffff << (shift / 32 * 32);
        let mask = ((1 << width) - 1) << shift;
        self.words[word] = (self.words[word] & !half) | (half & !mask) | (u64::from(value) << shift);
        self
    }

    /// Address of the image.
    pub fn address(&self) -> u64 {
        self.words.as_ptr() as u64
    }
}
