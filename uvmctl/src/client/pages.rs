//! Lists, which the daemon answers a page at a time. It is not trusted to come to an end.

use std::{
    collections::{BTreeMap, HashSet},
    io::Write,
    marker::PhantomData,
};

use model::api::{Evictions, ProcessSummaries, Verdicts, decision::Decisions, rule::Overrides};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use ureq::http::Method;

use super::{Answer, Client, Error};
use crate::text;

/// The most that a page may have: fewer questions.
pub(crate) const PAGE: u32 = 1000;
/// More pages than any list has: 5,000 processes on 8 GPUs are 65.
const PAGES_MAX: usize = 1000;
/// Of a list that is held: 5,000 processes in short are 10 MiB.
const HELD_BYTES_MAX: u64 = 64 << 20;
/// Of one that is passed on as it comes: 5,000 processes on 8 GPUs are 122 MiB.
const PASSED_BYTES_MAX: u64 = 1 << 30;
/// Cursors of uvmd are shorter.
const CURSOR_BYTES_MAX: usize = 2048;

/// A page of a list.
pub(crate) trait Page: DeserializeOwned {
    /// Where the next page begins, if there is one.
    fn cursor(&self) -> Option<&str>;

    /// How many items it has.
    fn len(&self) -> usize;

    /// Takes the items of the next page.
    fn extend(&mut self, next: Self);
}

macro_rules! pages_of {
    ($($page:ty: $($list:ident),+;)+) => {
        $(impl Page for $page {
            fn cursor(&self) -> Option<&str> {
                self.r#continue.as_deref()
            }

            fn len(&self) -> usize {
                [$(self.$list.len()),+].into_iter().sum()
            }

            fn extend(&mut self, next: Self) {
                $(self.$list.extend(next.$list);)+
            }
        })+
    };
}

pages_of! {
    ProcessSummaries: processes;
    Verdicts: active, ended;
    Evictions: pairs;
    Decisions: decisions;
    Overrides: overrides;
}

/// The pages of a list, one after the other.
struct Pages<'a, T> {
    client: &'a Client,
    path: &'a str,
    /// How many items are wanted yet. A `path` of fewer than all has no limit: each page asks for what is left.
    items_left: Option<usize>,
    /// The next one's; `None` behind the last one.
    next: Option<String>,
    cursors: HashSet<String>,
    taken: usize,
    bytes: u64,
    bytes_max: u64,
    _page: PhantomData<T>,
}

impl<'a, T> Pages<'a, T> {
    fn new(client: &'a Client, path: &'a str, items_max: Option<usize>, bytes_max: u64) -> Self {
        let mut pages = Self {
            client,
            path,
            items_left: items_max,
            next: None,
            cursors: HashSet::new(),
            taken: 0,
            bytes: 0,
            bytes_max,
            _page: PhantomData,
        };
        pages.next = Some(pages.path_of(None));
        pages
    }

    /// Of the next page, which begins there.
    fn path_of(&self, cursor: Option<&str>) -> String {
        let limit = self.items_left.map(|left| format!("limit={}", left.min(PAGE as usize)));
        let cursor = cursor.map(|cursor| format!("continue={cursor}"));
        limit.into_iter().chain(cursor).fold(self.path.to_owned(), |path, parameter| {
            let joint = if path.contains('?') { '&' } else { '?' };
            format!("{path}{joint}{parameter}")
        })
    }

    /// What follows a page of so many items, if its cursor says that anything does.
    fn follow(&mut self, cursor: Option<&str>, items: usize) -> Result<(), Error> {
        let endless = |why: String| Error::Endless { place: self.client.place.clone(), why };
        self.items_left = self.items_left.map(|left| left.saturating_sub(items));
        let Some(cursor) = cursor.filter(|_| self.items_left != Some(0)) else { return Ok(()) };
        let is_cursor = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if cursor.is_empty() || cursor.len() > CURSOR_BYTES_MAX || !cursor.bytes().all(is_cursor) {
            return Err(endless("its `continue` is no cursor of uvmd".to_owned()));
        }
        if items == 0 {
            return Err(endless("a page has nothing, and says that another follows".to_owned()));
        }
        if !self.cursors.insert(cursor.to_owned()) {
            return Err(endless("a page says that one follows that was there already".to_owned()));
        }
        if self.taken >= PAGES_MAX {
            return Err(endless(format!("there are more than {PAGES_MAX} pages")));
        }
        self.next = Some(self.path_of(Some(cursor)));
        Ok(())
    }

    fn count(&mut self, json: &str) -> Result<(), Error> {
        self.taken += 1;
        self.bytes += json.len() as u64;
        if self.bytes <= self.bytes_max {
            return Ok(());
        }
        let why = format!("it is longer than {}", text::bytes(self.bytes_max));
        Err(Error::Endless { place: self.client.place.clone(), why })
    }

    fn text(&mut self) -> Option<Result<String, Error>> {
        let path = self.next.take()?;
        let asked = self.client.ask(&Method::GET, &path, None);
        Some(asked.and_then(|json| self.count(&json).map(|()| json)))
    }
}

impl<T: Page> Iterator for Pages<'_, T> {
    type Item = Result<T, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let page = |this: &mut Self, json: String| {
            let Answer { body, .. } = this.client.parse::<T>(json)?;
            this.follow(body.cursor(), body.len())?;
            Ok(body)
        };
        let json = self.text()?;
        Some(json.and_then(|json| page(self, json)))
    }
}

/// The fields of a page as they were written.
#[derive(Deserialize)]
#[serde(transparent)]
struct Fields<'a>(#[serde(borrow)] BTreeMap<String, &'a RawValue>);

/// A page as it was written: its fields, the items of the one that is the list, and its cursor.
struct Written<'a> {
    fields: BTreeMap<String, &'a RawValue>,
    items: Vec<&'a RawValue>,
    cursor: Option<String>,
}

impl Client {
    /// A list, all pages of it together. What tells of all of it, such as its time, is the first page's: the pages after it follow at once, and in the same
    /// way the next time, so that rates are right.
    pub(crate) fn list<T: Page>(&self, path: &str) -> Result<T, Error> {
        self.list_up_to(path, None)
    }

    /// The same, so many items at most if that is given; then `path` has no limit.
    pub(crate) fn list_up_to<T: Page>(&self, path: &str, items_max: Option<usize>) -> Result<T, Error> {
        let mut pages = Pages::new(self, path, items_max, HELD_BYTES_MAX);
        let nothing = || self.foreign("it does not answer".to_owned());
        let mut all: T = pages.next().ok_or_else(nothing)??;
        for page in pages {
            all.extend(page?);
        }
        Ok(all)
    }

    /// Passes one document on as the daemon writes it, once it is known to be what was asked for.
    pub(crate) fn pass_on_one<T: DeserializeOwned>(&self, path: &str, out: &mut dyn Write) -> anyhow::Result<()> {
        let Answer { json, .. } = self.get::<T>(path)?;
        Ok(writeln!(out, "{}", text::printable_json(&json))?)
    }

    /// Passes a list on as the daemon writes it, as one document. A list of one page is its own answer; of more, the fields beside `list` are the first
    /// page's, and each page is passed on before the next is asked for. `path` is of the first page, `whole` of a list that has more.
    pub(crate) fn pass_on(&self, path: &str, whole: &str, list: &str, out: &mut dyn Write) -> anyhow::Result<()> {
        let first = self.ask(&Method::GET, path, None)?;
        if self.written(&first, list)?.cursor.is_none() {
            return Ok(writeln!(out, "{}", text::printable_json(&first))?);
        }
        self.pass_pages_on(whole, None, list, out)
    }

    /// The same of so many items at most. `path` has no limit.
    pub(crate) fn pass_on_up_to(
        &self,
        path: &str,
        items_max: usize,
        list: &str,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        self.pass_pages_on(path, Some(items_max), list, out)
    }

    /// `continue` and `remaining` are the last page's: they tell what was not asked for.
    fn pass_pages_on(
        &self,
        path: &str,
        items_max: Option<usize>,
        list: &str,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        let mut pages: Pages<'_, ()> = Pages::new(self, path, items_max, PASSED_BYTES_MAX);
        let mut end = String::new();
        let mut count = 0;
        while let Some(json) = pages.text() {
            let json = json?;
            let Written { fields, mut items, cursor } = self.written(&json, list)?;
            items.truncate(pages.items_left.unwrap_or(usize::MAX));
            pages.follow(cursor.as_deref(), items.len())?;
            if end.is_empty() {
                write!(out, "{{")?;
                for (name, value) in fields.iter().filter(|(name, _)| !is_of_page(name, list)) {
                    let name = serde_json::to_string(name)?;
                    write!(out, "{}:{},", text::printable_json(&name), text::printable_json(value.get()))?;
                }
                write!(out, "\"{list}\":[")?;
            }
            for item in items {
                let joint = if count == 0 { "" } else { "," };
                write!(out, "{joint}{}", text::printable_json(item.get()))?;
                count += 1;
            }
            let field = |name, otherwise| fields.get(name).map_or(otherwise, |value: &&RawValue| value.get());
            let (cursor, remaining) = (field("continue", "null"), field("remaining", "0"));
            end = format!("],\"continue\":{cursor},\"remaining\":{remaining}}}");
        }
        Ok(writeln!(out, "{}", text::printable_json(&end))?)
    }

    /// The fields of a page, one of which is the list, and its cursor.
    fn written<'a>(&self, json: &'a str, list: &str) -> Result<Written<'a>, Error> {
        let unexpected = |error: &serde_json::Error| self.foreign(super::unexpected(error));
        let fields: Fields<'a> = serde_json::from_str(json).map_err(|error| unexpected(&error))?;
        let items = fields.0.get(list).and_then(|list| serde_json::from_str(list.get()).ok());
        let items = items.ok_or_else(|| self.foreign(format!("its answer has no list of {list}")))?;
        let cursor = fields.0.get("continue").map(|cursor| serde_json::from_str(cursor.get())).transpose();
        let cursor: Option<Option<String>> = cursor.map_err(|error| unexpected(&error))?;
        Ok(Written { fields: fields.0, items, cursor: cursor.flatten() })
    }
}

fn is_of_page(name: &str, list: &str) -> bool {
    name == list || name == "continue" || name == "remaining"
}
