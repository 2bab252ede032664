//! Entity tags of `If-Match` and `If-None-Match`, as in RFC 9110, 8.8.3 and 13.1.

use axum::http::{HeaderMap, HeaderName};

use crate::problem::{Kind, Problem};

/// Value of one of the headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EntityTags {
    /// `*`.
    Any,
    Listed(Vec<EntityTag>),
}

/// Entity tag in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntityTag {
    is_weak: bool,
    /// Text between the quotes.
    opaque: String,
}

impl EntityTags {
    /// Value of this header; `None` without it.
    ///
    /// # Errors
    /// If it is malformed.
    pub(crate) fn of(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Self>, Problem> {
        let values: Vec<_> = headers.get_all(name).iter().map(|value| value.to_str().ok()).collect();
        if values.is_empty() {
            return Ok(None);
        }
        let tags = values.into_iter().collect::<Option<Vec<_>>>().and_then(|values| Self::parse(&values.join(",")));
        tags.map(Some).ok_or_else(|| Problem::new(Kind::InvalidHeader, format!("{name} is malformed")))
    }

    fn parse(text: &str) -> Option<Self> {
        if text.trim() == "*" {
            return Some(Self::Any);
        }
        let mut tags = Vec::new();
        let mut rest = text.trim_start_matches([' ', '\t', ',']);
        while !rest.is_empty() {
            let weak = rest.strip_prefix("W/");
            let (opaque, after) = weak.unwrap_or(rest).strip_prefix('"')?.split_once('"')?;
            tags.push(EntityTag { is_weak: weak.is_some(), opaque: opaque.to_owned() });
            let after = after.trim_start_matches([' ', '\t']);
            if !after.is_empty() && !after.starts_with(',') {
                return None;
            }
            rest = after.trim_start_matches([' ', '\t', ',']);
        }
        Some(Self::Listed(tags))
    }

    /// Whether a representation with this strong tag, in quotes, meets the condition `If-Match`.
    pub(crate) fn match_strongly(&self, tag: &str) -> bool {
        self.have(tag, |listed| !listed.is_weak)
    }

    /// Whether it is one that `If-None-Match` names.
    pub(crate) fn match_weakly(&self, tag: &str) -> bool {
        self.have(tag, |_| true)
    }

    fn have(&self, tag: &str, is_comparable: impl Fn(&EntityTag) -> bool) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(tags) => {
                tags.iter().any(|listed| is_comparable(listed) && listed.opaque == tag.trim_matches('"'))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderValue, header::IF_MATCH};

    use super::*;

    fn tags(values: &[&str]) -> Result<Option<EntityTags>, Problem> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(IF_MATCH, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        EntityTags::of(&headers, &IF_MATCH)
    }

    #[test]
    fn tags_of_all_values_are_compared_as_the_condition_requires() {
        assert_eq!(tags(&[]).unwrap(), None);
        for (values, strongly, weakly) in [
            (&["*"][..], true, true),
            (&["\"a\""], true, true),
            (&["W/\"a\""], false, true),
            (&["\"b\", W/\"a\",\"c\""], false, true),
            (&[" ,\"b,a\" ,, \"a\" ,"], true, true),
            (&["\"b\"", "\"a\""], true, true),
            (&["\"b,a\""], false, false),
            (&["\"\""], false, false),
            (&[""], false, false),
        ] {
            let tags = tags(values).unwrap().unwrap();
            assert_eq!((tags.match_strongly("\"a\""), tags.match_weakly("\"a\"")), (strongly, weakly), "{values:?}");
        }
    }

    #[test]
    fn values_that_are_no_list_of_tags_are_refused() {
        for value in ["a", "\"a", "a\"", "\"a\" \"b\"", "\"a\"b", "w/\"a\"", "*, \"a\"", "\"a\", *", "\"\u{e4}\""] {
            assert!(tags(&[value]).is_err(), "{value}");
        }
    }
}
