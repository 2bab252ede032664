//! Pages of lists: their length, and the begin of the next one.
//!
//! A page ends after `limit` items, or earlier if it would become too long. Its cursor is the sort
//! key of its last item. So the list may change between two pages: the next page has the items that
//! then follow that key.

use std::{
    cmp::Ordering,
    fmt,
    hash::{BuildHasher, RandomState},
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::value::{RawValue, to_raw_value};
use utoipa::ToSchema;

use crate::{
    parameters::UpTo,
    problem::{Kind, Problem},
};

/// Items of a page by default.
pub(crate) const LIMIT: u32 = 100;
pub(crate) const LIMIT_MAX: u32 = 1000;
/// Maximum length of a page: one of large items has fewer items, but at least one.
pub(crate) const PAGE_BYTES_MAX: usize = 2 << 20;
/// Maximum length of a cursor; issued ones are shorter.
const CURSOR_BYTES_MAX: usize = 1024;

/// Sort order of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// By activity, descending.
    #[default]
    Activity,
    /// By id, which does not change.
    Id,
}

impl Order {
    /// Sort key of an item's activity, 0 if the list is sorted by id.
    pub(crate) fn rank(self, activity: impl FnOnce() -> u64) -> u64 {
        match self {
            Self::Activity => activity(),
            Self::Id => 0,
        }
    }
}

/// Cursor of a request, not yet checked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Cursor(String);

/// Requested part of a list.
#[derive(Clone, Debug)]
pub(crate) struct PageRequest {
    /// Name of the list with its filters and order. A position is valid for one list.
    list: String,
    limit: usize,
    after: Option<Position>,
}

/// Position of a cursor that was issued for a list.
#[derive(Clone, Debug)]
struct Position {
    cursor: String,
    /// Sort key of the item before the page, as JSON.
    key: Vec<u8>,
}

/// Part of a list. Each item is converted to JSON at once, so that few are held in both forms.
#[derive(Debug)]
pub(crate) struct Page {
    /// Number of items before the page.
    pub(crate) begin: usize,
    pub(crate) items: Vec<Box<RawValue>>,
    /// Cursor of the next page, if there is one.
    pub(crate) r#continue: Option<String>,
    /// Number of items after the page.
    pub(crate) remaining: u64,
}

/// Issuer of cursors that are valid in this run of the service. Others are rejected so that
/// mistakes show; a forged one would not expose more.
#[derive(Debug, Default)]
pub(crate) struct Cursors(RandomState);

/// Canonical text of the request.
impl fmt::Display for PageRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { list, limit, after } = self;
        let after = after.as_ref().map_or("", |after| &after.cursor);
        write!(f, "{list} limit={limit} continue={after}")
    }
}

impl Cursors {
    /// Part of a list for a request. Fails if the cursor was not issued for this list.
    pub(crate) fn page_request(
        &self,
        list: String,
        limit: Option<UpTo<LIMIT_MAX>>,
        after: Option<Cursor>,
    ) -> Result<PageRequest, Problem> {
        let after = after.map(|cursor| self.check(&list, cursor)).transpose()?;
        Ok(PageRequest { list, limit: limit.map_or(LIMIT, |UpTo(limit)| limit) as usize, after })
    }

    /// Page of a list. `items` need not be sorted; their sort keys are unique.
    pub(crate) fn page<K, I, T>(
        &self,
        part: &PageRequest,
        mut items: Vec<(K, I)>,
        show: impl Fn(&I) -> T,
    ) -> Result<Page, Problem>
    where
        K: Ord + Serialize + DeserializeOwned,
        T: Serialize,
    {
        items.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let begin = match &part.after {
            Some(after) => {
                let after: K = after.read()?;
                items.partition_point(|(key, _)| key.cmp(&after) != Ordering::Greater)
            }
            None => 0,
        };
        let cursor_of = |_, (key, _): &(K, I)| self.issue(&part.list, key);
        Ok(cut(&items, begin, part.limit, |(_, item)| show(item), cursor_of))
    }

    /// Page of a list whose order does not follow from the items. The cursor has the index and the
    /// name of the last item, which may have moved since.
    pub(crate) fn page_in_order<I, T: Serialize>(
        &self,
        part: &PageRequest,
        items: &[I],
        name: impl Fn(&I) -> &str,
        show: impl Fn(&I) -> T,
    ) -> Result<Page, Problem> {
        let begin = match &part.after {
            Some(after) => {
                let (index, after): (usize, String) = after.read()?;
                let current = items.iter().position(|item| name(item) == after);
                // The item that replaced a removed one is not on an earlier page.
                current.map_or(index, |current| current + 1)
            }
            None => 0,
        };
        let cursor_of = |at: usize, item: &I| self.issue(&part.list, &(at, name(item)));
        Ok(cut(items, begin, part.limit, show, cursor_of))
    }

    fn issue<K: Serialize>(&self, list: &str, key: &K) -> String {
        // Serialization fails for keys that are not text alone, and there are none.
        let key = serde_json::to_vec(key).unwrap_or_default();
        let seal = self.seal(list, &key);
        BASE64_URL_SAFE_NO_PAD.encode([&seal[..], &key].concat())
    }

    fn check(&self, list: &str, Cursor(cursor): Cursor) -> Result<Position, Problem> {
        if cursor.len() > CURSOR_BYTES_MAX {
            return Err(invalid("longer than any issued one"));
        }
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(&cursor).map_err(|_| malformed())?;
        let (seal, key) = bytes.split_first_chunk().ok_or_else(malformed)?;
        if *seal != self.seal(list, key) {
            return Err(invalid("not of this list with these parameters, or of an earlier run of uvmd"));
        }
        Ok(Position { key: key.to_vec(), cursor })
    }

    fn seal(&self, list: &str, key: &[u8]) -> [u8; 8] {
        self.0.hash_one((list, key)).to_be_bytes()
    }
}

impl Position {
    fn read<K: DeserializeOwned>(&self) -> Result<K, Problem> {
        serde_json::from_slice(&self.key).map_err(|_| malformed())
    }
}

fn invalid(reason: &str) -> Problem {
    let detail = format!("`continue` is {reason}; request the list from its first page, without it");
    Problem::new(Kind::InvalidCursor, detail)
}

fn malformed() -> Problem {
    invalid("malformed: send it unchanged")
}

/// Page from `begin`, of as many items as its limits allow.
fn cut<I, T: Serialize>(
    items: &[I],
    begin: usize,
    limit: usize,
    show: impl Fn(&I) -> T,
    cursor_of: impl Fn(usize, &I) -> String,
) -> Page {
    let rest = items.get(begin..).unwrap_or_default();
    let mut shown: Vec<Box<RawValue>> = Vec::new();
    let mut bytes = 0;
    for item in rest.iter().take(limit) {
        // Serialization fails for keys that are not text alone, and there are none.
        let Ok(item) = to_raw_value(&show(item)) else { break };
        bytes += item.get().len() + 1;
        if bytes > PAGE_BYTES_MAX && !shown.is_empty() {
            break;
        }
        shown.push(item);
    }
    let remaining = rest.len() - shown.len();
    let last = shown.len().checked_sub(1).and_then(|last| Some((begin + last, rest.get(last)?)));
    let next = last.filter(|_| remaining > 0).map(|(at, item)| cursor_of(at, item));
    Page { begin, items: shown, r#continue: next, remaining: remaining as u64 }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;

    use super::*;

    /// A page of a list of numbers.
    fn page(
        cursors: &Cursors,
        limit: u32,
        after: Option<String>,
        items: Vec<(Reverse<u64>, u64)>,
    ) -> Result<Page, Problem> {
        let part = cursors.page_request("numbers".to_owned(), Some(UpTo(limit)), after.map(Cursor))?;
        cursors.page(&part, items, |number| *number)
    }

    fn shown(page: &Page) -> Vec<u64> {
        page.items.iter().map(|item| item.get().parse().unwrap()).collect()
    }

    fn numbers(numbers: impl IntoIterator<Item = u64>) -> Vec<(Reverse<u64>, u64)> {
        numbers.into_iter().map(|number| (Reverse(number), number)).collect()
    }

    #[test]
    fn pages_cover_a_list_in_order() {
        let cursors = Cursors::default();
        let first = page(&cursors, 2, None, numbers([3, 5, 1, 4, 2])).unwrap();
        assert_eq!((shown(&first), first.remaining), (vec![5, 4], 3));
        let second = page(&cursors, 2, first.r#continue, numbers(1..=5)).unwrap();
        assert_eq!((shown(&second), second.remaining), (vec![3, 2], 1));
        let third = page(&cursors, 2, second.r#continue, numbers(1..=5)).unwrap();
        assert_eq!((shown(&third), third.r#continue, third.remaining), (vec![1], None, 0));
    }

    #[test]
    fn a_page_begins_after_the_last_one_though_its_last_item_was_removed() {
        let cursors = Cursors::default();
        let first = page(&cursors, 2, None, numbers([9, 7, 5, 3])).unwrap();
        let changed = numbers([9, 8, 6, 3]);
        let second = page(&cursors, 2, first.r#continue, changed).unwrap();
        assert_eq!((shown(&second), second.r#continue), (vec![6, 3], None));
    }

    #[test]
    fn a_page_of_large_items_ends_early_and_always_has_one() {
        let cursors = Cursors::default();
        let text = |item: &usize| "x".repeat(*item);
        let items = |bytes: usize| (0..5_u8).map(|at| (at, bytes)).collect();
        let part = cursors.page_request("texts".to_owned(), Some(UpTo(5)), None).unwrap();
        let page = cursors.page(&part, items(PAGE_BYTES_MAX / 2 - 3), text).unwrap();
        assert_eq!((page.items.len(), page.remaining), (2, 3));
        let page = cursors.page(&part, items(PAGE_BYTES_MAX * 2), text).unwrap();
        assert_eq!((page.items.len(), page.remaining, page.r#continue.is_some()), (1, 4, true));
    }

    #[test]
    fn a_cursor_not_issued_for_this_list_by_this_run_is_rejected() {
        let cursors = Cursors::default();
        let request = |cursors: &Cursors, list: &str, limit, after: Option<String>| {
            cursors.page_request(list.to_owned(), Some(UpTo(limit)), after.map(Cursor))
        };
        let issued = page(&cursors, 2, None, numbers(0..9)).unwrap().r#continue.unwrap();
        assert!(request(&cursors, "numbers", 3, Some(issued.clone())).is_ok(), "another limit is fine");
        let mut changed = issued.clone().into_bytes();
        let last = changed.last_mut().unwrap();
        *last = if *last == b'A' { b'B' } else { b'A' };
        let forged = BASE64_URL_SAFE_NO_PAD.encode(b"\0\0\0\0\0\0\0\0\x35");
        for invalid in [String::from_utf8(changed).unwrap(), forged, String::new(), "?".to_owned(), "A".repeat(5000)] {
            assert!(request(&cursors, "numbers", 2, Some(invalid.clone())).is_err(), "{invalid}");
        }
        assert!(request(&cursors, "letters", 2, Some(issued.clone())).is_err());
        assert!(request(&Cursors::default(), "numbers", 2, Some(issued)).is_err());
    }
}
