//! Host names of requests.

use serde::Serialize;

use super::Value;

/// Host names, as in the `Host` of a request but without its port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HostNames(pub Vec<String>);

impl Value for HostNames {
    const ALLOWED: &'static str = "names of hosts without ports, such as [\"node7.example.org\"]";

    fn of_text(text: &str) -> Option<Self> {
        Self::of_texts(vec![text.to_owned()])
    }

    fn of_texts(texts: Vec<String>) -> Option<Self> {
        let is_part = |part: &str| {
            !part.is_empty()
                && part.len() <= 63
                && part.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        };
        let is_name = |text: &String| text.len() <= 253 && text.split('.').all(is_part);
        texts.iter().all(is_name).then_some(Self(texts))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::texts, *};

    #[test]
    fn names_have_neither_ports_nor_wildcards() {
        texts::<HostNames>(
            &["node7", "node7.example.org", "gpu_1"],
            &["", "node7:9477", "*.example.org", "http://node7", "a..b", "a."],
        );
        assert!(HostNames::of_texts(vec!["a".to_owned(), "b:1".to_owned()]).is_none());
    }
}
