//! Paginated lists. The daemon is not trusted to end a list.

use std::{
    collections::{BTreeMap, HashSet},
    io::Write,
    marker::PhantomData,
};

use api::{Evictions, Owners, ProcessSummaries, Verdicts, decision::Decisions, rule::Overrides};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::value::RawValue;
use ureq::http::Method;

use super::{Client, Error, Response};
use crate::text;

/// Items per page: the maximum, for the fewest requests.
pub(crate) const PAGE: u32 = 1000;
/// Maximum of pages. 5,000 processes on 8 GPUs take 65.
const PAGES_MAX: usize = 1000;
/// Maximum size of a list held in memory. 5,000 summaries of processes take 10 MiB.
const HELD_BYTES_MAX: u64 = 64 << 20;
/// Maximum size of a list passed on page by page. 5,000 processes on 8 GPUs take 122 MiB.
const PASSED_BYTES_MAX: u64 = 1 << 30;
/// Maximum length of a cursor; uvmd's are shorter.
const CURSOR_BYTES_MAX: usize = 2048;

/// A page of a list.
pub(crate) trait Page: DeserializeOwned {
    /// Cursor of the next page, if there is one.
    fn cursor(&self) -> Option<&str>;

    /// Number of items.
    fn len(&self) -> usize;

    /// Appends the items of the next page.
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
    Decisions: decisions;
    Overrides: overrides;
    Owners: owners;
}

impl Page for Evictions {
    fn cursor(&self) -> Option<&str> {
        self.r#continue.as_deref()
    }

    fn len(&self) -> usize {
        self.pairs.as_ref().map_or(0, Vec::len)
    }

    fn extend(&mut self, next: Self) {
        if let Some(pairs) = &mut self.pairs {
            pairs.extend(next.pairs.unwrap_or_default());
        }
    }
}

/// Iterator over the pages of a list.
struct Pages<'a, T> {
    client: &'a Client,
    path: &'a str,
    /// Items still to be fetched. A `path` of fewer than all has no `limit`: each page's request
    /// adds the rest.
    items_left: Option<usize>,
    /// Path of the next page; `None` after the last one.
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

    /// Path of the page at this cursor.
    fn path_of(&self, cursor: Option<&str>) -> String {
        let limit = self.items_left.map(|left| format!("limit={}", left.min(PAGE as usize)));
        let cursor = cursor.map(|cursor| format!("continue={cursor}"));
        limit.into_iter().chain(cursor).fold(self.path.to_owned(), |path, parameter| {
            let joint = if path.contains('?') { '&' } else { '?' };
            format!("{path}{joint}{parameter}")
        })
    }

    /// Sets the path of the next page from a page's cursor and number of items.
    fn follow(&mut self, cursor: Option<&str>, items: usize) -> Result<(), Error> {
        let endless = |reason: String| Error::Endless { endpoint: self.client.endpoint.clone(), reason };
        self.items_left = self.items_left.map(|left| left.saturating_sub(items));
        let Some(cursor) = cursor.filter(|_| self.items_left != Some(0)) else { return Ok(()) };
        let is_cursor = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if cursor.is_empty() || cursor.len() > CURSOR_BYTES_MAX || !cursor.bytes().all(is_cursor) {
            return Err(endless("its `continue` is not a cursor of uvmd".to_owned()));
        }
        if items == 0 {
            return Err(endless("an empty page has a cursor".to_owned()));
        }
        if !self.cursors.insert(cursor.to_owned()) {
            return Err(endless("a cursor is repeated".to_owned()));
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
        let reason = format!("it is longer than {}", text::bytes(self.bytes_max));
        Err(Error::Endless { endpoint: self.client.endpoint.clone(), reason })
    }

    fn text(&mut self) -> Option<Result<String, Error>> {
        let path = self.next.take()?;
        let response = self.client.send(&Method::GET, &path, None);
        Some(response.and_then(|json| self.count(&json).map(|()| json)))
    }
}

impl<T: Page> Iterator for Pages<'_, T> {
    type Item = Result<T, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let page = |this: &mut Self, json: String| {
            let Response { body, .. } = this.client.parse::<T>(json)?;
            this.follow(body.cursor(), body.len())?;
            Ok(body)
        };
        let json = self.text()?;
        Some(json.and_then(|json| page(self, json)))
    }
}

/// Fields of a page as raw JSON.
#[derive(Deserialize)]
#[serde(transparent)]
struct Fields<'a>(#[serde(borrow)] BTreeMap<String, &'a RawValue>);

/// Page as raw JSON: its fields, the items of its list, and its cursor.
struct RawPage<'a> {
    fields: BTreeMap<String, &'a RawValue>,
    items: Vec<&'a RawValue>,
    cursor: Option<String>,
}

impl Client {
    /// Fetches all pages of a list as one. Fields beside the items, such as the time, are those of
    /// the first page. The other pages follow at once, and in the same way at each reading, so that
    /// rates are right.
    pub(crate) fn list<T: Page>(&self, path: &str) -> Result<T, Error> {
        self.list_up_to(path, None)
    }

    /// Fetches up to `items_max` items; with that, `path` must have no limit.
    pub(crate) fn list_up_to<T: Page>(&self, path: &str, items_max: Option<usize>) -> Result<T, Error> {
        let mut pages = Pages::new(self, path, items_max, HELD_BYTES_MAX);
        let no_page = || self.not_uvmd("it has no first page".to_owned());
        let mut all: T = pages.next().ok_or_else(no_page)??;
        for page in pages {
            all.extend(page?);
        }
        Ok(all)
    }

    /// Writes one document as the daemon sent it, after a check of its form.
    pub(crate) fn pass_on_one<T: DeserializeOwned>(&self, path: &str, out: &mut dyn Write) -> anyhow::Result<()> {
        let Response { json, .. } = self.get::<T>(path)?;
        Ok(writeln!(out, "{}", text::printable_json(&json))?)
    }

    /// Writes a list as one document of the daemon's JSON. A list of one page is passed on
    /// unchanged. For more pages, the fields beside `list` are those of the first page, and each
    /// page is written before the next request. `path` requests the first page, `paged_path` a list
    /// of several.
    pub(crate) fn pass_on(&self, path: &str, paged_path: &str, list: &str, out: &mut dyn Write) -> anyhow::Result<()> {
        let first = self.send(&Method::GET, path, None)?;
        if self.raw_page(&first, list)?.cursor.is_none() {
            return Ok(writeln!(out, "{}", text::printable_json(&first))?);
        }
        self.pass_pages_on(paged_path, None, list, out)
    }

    /// Writes up to `items_max` items of a list. `path` must have no limit.
    pub(crate) fn pass_on_up_to(
        &self,
        path: &str,
        items_max: usize,
        list: &str,
        out: &mut dyn Write,
    ) -> anyhow::Result<()> {
        self.pass_pages_on(path, Some(items_max), list, out)
    }

    /// Writes a list page by page. `continue` and `remaining` are those of the last page: they
    /// describe the items that were not requested.
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
            let RawPage { fields, mut items, cursor } = self.raw_page(&json, list)?;
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

    /// Splits a page into its fields, the items of `list`, and its cursor.
    fn raw_page<'a>(&self, json: &'a str, list: &str) -> Result<RawPage<'a>, Error> {
        let unexpected = |error: &serde_json::Error| self.not_uvmd(super::unexpected(error));
        let fields: Fields<'a> = serde_json::from_str(json).map_err(|error| unexpected(&error))?;
        // A list that is not counted is null.
        let items = fields.0.get(list).and_then(|list| serde_json::from_str::<Option<_>>(list.get()).ok());
        let items = items
            .map(Option::unwrap_or_default)
            .ok_or_else(|| self.not_uvmd(format!("its response has no list of {list}")))?;
        let cursor = fields.0.get("continue").map(|cursor| serde_json::from_str(cursor.get())).transpose();
        let cursor: Option<Option<String>> = cursor.map_err(|error| unexpected(&error))?;
        Ok(RawPage { fields: fields.0, items, cursor: cursor.flatten() })
    }
}

fn is_of_page(name: &str, list: &str) -> bool {
    name == list || name == "continue" || name == "remaining"
}
