//! Conversion of JSON to YAML.

use std::io::{self, Write};

use serde_transcode::Transcoder;

use crate::text;

/// Maximum size of converted JSON, as the document is held in memory.
const MAX_BYTES: usize = 64 << 20;

/// Buffer of JSON to be converted.
#[derive(Default)]
pub(crate) struct Buffer(Vec<u8>);

impl Buffer {
    /// Converts the JSON to YAML with escaped control characters.
    pub(crate) fn into_yaml(self) -> anyhow::Result<String> {
        let mut json = serde_json::Deserializer::from_slice(&self.0);
        let yaml = serde_saphyr::to_string(&Transcoder::new(&mut json))?;
        Ok(text::printable_json(&yaml).into_owned())
    }
}

impl Write for Buffer {
    fn write(&mut self, part: &[u8]) -> io::Result<usize> {
        if self.0.len() + part.len() > MAX_BYTES {
            let size = text::bytes(MAX_BYTES as u64);
            return Err(io::Error::other(format!(
                "the response is longer than {size}: -o json passes it on as it comes"
            )));
        }
        self.0.write(part)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn yaml(json: &str) -> String {
        let mut buffer = Buffer::default();
        buffer.write_all(json.as_bytes()).unwrap();
        buffer.into_yaml().unwrap()
    }

    #[test]
    fn fields_stay_in_order_and_text_that_looks_like_something_else_is_quoted() {
        let json = r#"{"z": 18446744073709551615, "a": ["yes", "1", null, true, 0.5], "m": {}}"#;
        assert_eq!(yaml(json), "z: 18446744073709551615\na:\n- \"yes\"\n- \"1\"\n- null\n- true\n- 0.5\nm: {}\n");
    }

    #[test]
    fn names_cannot_command_the_terminal() {
        let yaml = yaml(r#"{"a": "x\u001b[2J", "b": "x\u202ey\u200b", "c": "naïve"}"#);
        assert_eq!(yaml, "a: \"x\\e[2J\"\nb: x\\u202ey\\u200b\nc: naïve\n");
    }

    #[test]
    fn an_oversized_response_is_rejected() {
        let mut buffer = Buffer::default();
        let part = vec![b'x'; MAX_BYTES];
        assert!(buffer.write_all(&part).is_ok());
        assert!(buffer.write_all(b"x").unwrap_err().to_string().contains("-o json"));
    }
}
