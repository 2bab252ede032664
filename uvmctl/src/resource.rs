//! Names of resources in output and arguments, such as `process/1234`.

use crate::text;

/// Kinds of named resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Process,
    Gpu,
    Override,
    Decision,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Gpu => "gpu",
            Self::Override => "override",
            Self::Decision => "decision",
        }
    }

    /// `process/1234`
    pub(crate) fn named(self, id: impl std::fmt::Display) -> String {
        text::printable(&format!("{}/{id}", self.name())).into_owned()
    }

    /// Id within a name; the whole text without the prefix of a kind.
    fn id(self, text: &str) -> &str {
        text.strip_prefix(self.name()).and_then(|rest| rest.strip_prefix('/')).unwrap_or(text)
    }
}

/// Parses a pid or the name of a process.
pub(crate) fn process(text: &str) -> Result<u32, String> {
    Kind::Process.id(text).parse().map_err(|_| "expected a pid such as 1234, or process/1234".to_owned())
}

/// Parses the id or the name of a decision.
pub(crate) fn decision(text: &str) -> Result<u64, String> {
    Kind::Decision.id(text).parse().map_err(|_| "expected an id such as 17, or decision/17".to_owned())
}

/// Parses the id or the name of an override.
pub(crate) fn r#override(text: &str) -> Result<String, String> {
    match Kind::Override.id(text) {
        "" => Err("expected an id such as llm, or override/llm".to_owned()),
        id => Ok(id.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_accepted_as_arguments() {
        assert_eq!(process(&Kind::Process.named(1234)), Ok(1234));
        assert_eq!(decision(&Kind::Decision.named(17)), Ok(17));
        assert_eq!(r#override(&Kind::Override.named("llm")), Ok("llm".to_owned()));
    }

    #[test]
    fn the_kind_of_an_id_is_optional_and_another_kind_is_rejected() {
        assert_eq!((process("1234"), r#override("llm")), (Ok(1234), Ok("llm".to_owned())));
        assert!(process("decision/1234").is_err() && process("process/").is_err() && decision("17a").is_err());
        assert!(r#override("override/").is_err());
    }
}
