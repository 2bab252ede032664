//! Pages of lists: how long they are, and where the next one begins.
//!
//! A page ends after `limit` items, or before where it would become too long. It says where the next one begins: behind its last item, by what the list is
//! sorted by. So a list may change between two pages: what is behind that place then is what the next page shows.

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

/// Items of a page, unless the request says.
pub(crate) const LIMIT: u32 = 100;
pub(crate) const LIMIT_MAX: u32 = 1000;
/// A page of large items has fewer. One item there always is.
pub(crate) const PAGE_BYTES_MAX: usize = 2 << 20;
/// Those that are given are shorter.
const CURSOR_BYTES_MAX: usize = 1024;

/// What a list is sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// What does most first.
    #[default]
    Activity,
    /// By what names them, which does not change.
    Id,
}

impl Order {
    /// How much an item does, where it is sorted by that.
    pub(crate) fn rank(self, activity: impl FnOnce() -> u64) -> u64 {
        match self {
            Self::Activity => activity(),
            Self::Id => 0,
        }
    }
}

/// The position that a request asks to go on from, as it is written. Nothing is known of it yet.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Cursor(String);

/// Which part of a list is asked for.
#[derive(Clone, Debug)]
pub(crate) struct PageRequest {
    /// The list, as it is filtered and sorted. A position in one is none in another.
    list: String,
    limit: usize,
    behind: Option<Position>,
}

/// A position that was given out for a list.
#[derive(Clone, Debug)]
struct Position {
    cursor: String,
    /// In JSON.
    place: Vec<u8>,
}

/// A part of a list, each item in JSON: written as soon as it is made, so that few are held in both forms.
#[derive(Debug)]
pub(crate) struct Page {
    /// How many items of the list are before it.
    pub(crate) begin: usize,
    pub(crate) items: Vec<Box<RawValue>>,
    /// Where the next page begins, if there is one.
    pub(crate) r#continue: Option<String>,
    /// How many items are behind this page.
    pub(crate) remaining: u64,
}

/// Knows the cursors that this run of the service gave out. What it did not is refused, though nobody could read more with it: so that a mistake shows.
#[derive(Debug, Default)]
pub(crate) struct Cursors(RandomState);

/// What is asked for, in one form however the request wrote it.
impl fmt::Display for PageRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { list, limit, behind } = self;
        let behind = behind.as_ref().map_or("", |behind| &behind.cursor);
        write!(f, "{list} limit={limit} continue={behind}")
    }
}

impl Cursors {
    /// A part of a list, as a request asks for it. Fails where its cursor was not given out for this list.
    pub(crate) fn part(
        &self,
        list: String,
        limit: Option<UpTo<LIMIT_MAX>>,
        behind: Option<Cursor>,
    ) -> Result<PageRequest, Problem> {
        let behind = behind.map(|cursor| self.check(&list, cursor)).transpose()?;
        Ok(PageRequest { list, limit: limit.map_or(LIMIT, |UpTo(limit)| limit) as usize, behind })
    }

    /// The part of a list that was asked for. `items` need not be in order: each has its place, no two the same.
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
        let begin = match &part.behind {
            Some(behind) => {
                let behind: K = behind.read()?;
                items.partition_point(|(place, _)| place.cmp(&behind) != Ordering::Greater)
            }
            None => 0,
        };
        let place_of = |_, (place, _): &(K, I)| self.write(&part.list, place);
        Ok(cut(&items, begin, part.limit, |(_, item)| show(item), place_of))
    }

    /// The same of what is in an order that is not told by anything of an item: by its place, and by what names it, wherever that is by then.
    pub(crate) fn page_in_order<I, T: Serialize>(
        &self,
        part: &PageRequest,
        items: &[I],
        name: impl Fn(&I) -> &str,
        show: impl Fn(&I) -> T,
    ) -> Result<Page, Problem> {
        let begin = match &part.behind {
            Some(behind) => {
                let (place, behind): (usize, String) = behind.read()?;
                let there = items.iter().position(|item| name(item) == behind);
                // What took the place of one that is gone is not shown yet.
                there.map_or(place, |there| there + 1)
            }
            None => 0,
        };
        let place_of = |at: usize, item: &I| self.write(&part.list, &(at, name(item)));
        Ok(cut(items, begin, part.limit, show, place_of))
    }

    fn write<K: Serialize>(&self, list: &str, place: &K) -> String {
        // Nothing in it has keys that are no text.
        let place = serde_json::to_vec(place).unwrap_or_default();
        let seal = self.seal(list, &place);
        BASE64_URL_SAFE_NO_PAD.encode([&seal[..], &place].concat())
    }

    fn check(&self, list: &str, Cursor(cursor): Cursor) -> Result<Position, Problem> {
        if cursor.len() > CURSOR_BYTES_MAX {
            return Err(refused("longer than any that is given"));
        }
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(&cursor).map_err(|_| malformed())?;
        let (seal, place) = bytes.split_first_chunk().ok_or_else(malformed)?;
        if *seal != self.seal(list, place) {
            return Err(refused("not of this list with these parameters, or of an earlier run of uvmd"));
        }
        Ok(Position { place: place.to_vec(), cursor })
    }

    fn seal(&self, list: &str, place: &[u8]) -> [u8; 8] {
        self.0.hash_one((list, place)).to_be_bytes()
    }
}

impl Position {
    fn read<K: DeserializeOwned>(&self) -> Result<K, Problem> {
        serde_json::from_slice(&self.place).map_err(|_| malformed())
    }
}

fn refused(why: &str) -> Problem {
    let detail = format!("`continue` is {why}; request the list from its first page, without it");
    Problem::new(Kind::InvalidCursor, detail)
}

fn malformed() -> Problem {
    refused("malformed: it has to be sent back as it was given")
}

/// The items from `begin` on, as many as there is room for.
fn cut<I, T: Serialize>(
    items: &[I],
    begin: usize,
    limit: usize,
    show: impl Fn(&I) -> T,
    place_of: impl Fn(usize, &I) -> String,
) -> Page {
    let rest = items.get(begin..).unwrap_or_default();
    let mut shown: Vec<Box<RawValue>> = Vec::new();
    let mut bytes = 0;
    for item in rest.iter().take(limit) {
        // Nothing in it has keys that are no text.
        let Ok(item) = to_raw_value(&show(item)) else { break };
        bytes += item.get().len() + 1;
        if bytes > PAGE_BYTES_MAX && !shown.is_empty() {
            break;
        }
        shown.push(item);
    }
    let remaining = rest.len() - shown.len();
    let last = shown.len().checked_sub(1).and_then(|last| Some((begin + last, rest.get(last)?)));
    let next = last.filter(|_| remaining > 0).map(|(at, item)| place_of(at, item));
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
        behind: Option<String>,
        items: Vec<(Reverse<u64>, u64)>,
    ) -> Result<Page, Problem> {
        let part = cursors.part("numbers".to_owned(), Some(UpTo(limit)), behind.map(Cursor))?;
        cursors.page(&part, items, |number| *number)
    }

    fn shown(page: &Page) -> Vec<u64> {
        page.items.iter().map(|item| item.get().parse().unwrap()).collect()
    }

    fn numbers(numbers: impl IntoIterator<Item = u64>) -> Vec<(Reverse<u64>, u64)> {
        numbers.into_iter().map(|number| (Reverse(number), number)).collect()
    }

    #[test]
    fn pages_follow_each_other_until_there_are_no_more() {
        let cursors = Cursors::default();
        let first = page(&cursors, 2, None, numbers([3, 5, 1, 4, 2])).unwrap();
        assert_eq!((shown(&first), first.remaining), (vec![5, 4], 3));
        let second = page(&cursors, 2, first.r#continue, numbers(1..=5)).unwrap();
        assert_eq!((shown(&second), second.remaining), (vec![3, 2], 1));
        let third = page(&cursors, 2, second.r#continue, numbers(1..=5)).unwrap();
        assert_eq!((shown(&third), third.r#continue, third.remaining), (vec![1], None, 0));
    }

    #[test]
    fn a_page_goes_on_where_the_last_one_ended_though_what_was_there_is_gone() {
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
        let part = cursors.part("texts".to_owned(), Some(UpTo(5)), None).unwrap();
        let page = cursors.page(&part, items(PAGE_BYTES_MAX / 2 - 3), text).unwrap();
        assert_eq!((page.items.len(), page.remaining), (2, 3));
        let page = cursors.page(&part, items(PAGE_BYTES_MAX * 2), text).unwrap();
        assert_eq!((page.items.len(), page.remaining, page.r#continue.is_some()), (1, 4, true));
    }

    #[test]
    fn what_was_not_given_out_for_this_list_by_this_run_is_refused() {
        let cursors = Cursors::default();
        let ask = |cursors: &Cursors, list: &str, limit, behind: Option<String>| {
            cursors.part(list.to_owned(), Some(UpTo(limit)), behind.map(Cursor))
        };
        let given = page(&cursors, 2, None, numbers(0..9)).unwrap().r#continue.unwrap();
        assert!(ask(&cursors, "numbers", 3, Some(given.clone())).is_ok(), "another limit is fine");
        let mut changed = given.clone().into_bytes();
        let last = changed.last_mut().unwrap();
        *last = if *last == b'A' { b'B' } else { b'A' };
        let forged = BASE64_URL_SAFE_NO_PAD.encode(b"\0\0\0\0\0\0\0\0\x35");
        for refused in [String::from_utf8(changed).unwrap(), forged, String::new(), "?".to_owned(), "A".repeat(5000)] {
            assert!(ask(&cursors, "numbers", 2, Some(refused.clone())).is_err(), "{refused}");
        }
        assert!(ask(&cursors, "letters", 2, Some(given.clone())).is_err());
        assert!(ask(&Cursors::default(), "numbers", 2, Some(given)).is_err());
    }
}
