//! State of the view, without I/O: changed by responses and actions, read by the view.

use std::time::{Duration, Instant};

use api::Process;

use super::{
    columns::{self, Column, Figures, Row},
    fetch::{Detail, Detailed, OptionalParts, Request, Response, Sample},
    keys::{Action, Focus, Page, Purpose},
    process_key::ProcessKey,
    samples::Samples,
};
use crate::client::Error;

/// Settings by options and keys.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) interval: Duration,
    pub(crate) figures: Figures,
    pub(crate) sort: &'static Column,
    pub(crate) inverted: bool,
    /// Filter: text in the name, user, pid or cgroup of a process.
    pub(crate) filter: String,
    /// Whether ended processes are shown.
    pub(crate) ended: bool,
}

/// Effect of an action outside the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Draw,
    Send(Request),
    /// Draw the full screen.
    Redraw,
    Suspend,
    Quit,
}

/// Steps of the interval.
const INTERVALS_MS: [u64; 9] = [250, 500, 1000, 2000, 3000, 5000, 10_000, 30_000, 60_000];
/// Time after which a pending response is reported as slow.
const RESPONSE_SLOW: Duration = Duration::from_secs(2);

pub(crate) struct State {
    pub(crate) settings: Settings,
    pub(crate) samples: Samples,
    pub(crate) focus: Focus,
    /// Text to search for.
    pub(crate) search: String,
    pub(crate) paused: bool,
    pub(crate) selected: Option<ProcessKey>,
    pub(crate) detail_open: bool,
    detail: Option<Detail>,
    last_error: Option<String>,
    responded_at: Instant,
    requested_at: Option<Instant>,
    /// Row of the selection, in case its process is no longer listed.
    cursor: usize,
    /// First visible line of a page.
    pub(crate) page_top: usize,
    /// First visible row.
    top: usize,
    /// Characters in a row, and number of visible rows.
    width: usize,
    room: usize,
}

impl State {
    pub(crate) fn new(settings: Settings, sample: Sample, now: Instant) -> Self {
        Self {
            settings,
            samples: Samples::first(sample),
            focus: Focus::Table,
            search: String::new(),
            paused: false,
            selected: None,
            detail_open: false,
            detail: None,
            last_error: None,
            responded_at: now,
            requested_at: None,
            cursor: 0,
            page_top: 0,
            top: 0,
            width: 80,
            room: 1,
        }
    }

    // === contents ===

    /// Listed processes in order. Ended ones are last in any order.
    pub(crate) fn rows(&self) -> Vec<&Row> {
        let Settings { figures, sort, inverted, .. } = self.settings;
        let mut rows: Vec<_> = self.samples.rows.iter().filter(|row| self.is_shown(&row.process)).collect();
        rows.sort_by(|a, b| {
            let order = sort.compare(a, b, figures);
            has_ended(a).cmp(&has_ended(b)).then(if inverted { order.reverse() } else { order })
        });
        rows
    }

    /// Visible part of the rows.
    pub(crate) fn page(&self) -> Vec<&Row> {
        self.rows().into_iter().skip(self.top).take(self.room).collect()
    }

    fn is_shown(&self, process: &Process) -> bool {
        (self.settings.ended || process.state != "exited") && matches(process, &self.settings.filter)
    }

    pub(crate) fn is_selected(&self, row: &Row) -> bool {
        self.selected == Some(ProcessKey::of(&row.process))
    }

    /// Process of the detail pane, if the pane is open.
    pub(crate) fn detailed(&self) -> Option<&Row> {
        let selected = self.selected.filter(|_| self.detail_open)?;
        self.samples.rows.iter().find(|row| ProcessKey::of(&row.process) == selected)
    }

    /// Response about the selected process, once received.
    pub(crate) fn detail(&self) -> Option<Result<&Detailed, &Error>> {
        let Detail { key, response } = self.detail.as_ref()?;
        (Some(*key) == self.selected).then_some(response.as_deref())
    }

    /// Age of the last response and the reason, if responses fail or are overdue.
    pub(crate) fn silence(&self, now: Instant) -> Option<(Duration, &str)> {
        let overdue = self.requested_at.is_some_and(|requested_at| now.duration_since(requested_at) > RESPONSE_SLOW);
        let reason = self.last_error.as_deref().or_else(|| overdue.then_some("the response is slow"))?;
        Some((now.duration_since(self.responded_at), reason))
    }

    // === changes ===

    /// Sets the visible size of the table.
    pub(crate) fn fit(&mut self, width: usize, room: usize) {
        (self.width, self.room) = (width, room);
        self.follow_selection();
    }

    /// Sets the length of a page and its number of visible lines.
    pub(crate) fn fit_page(&mut self, lines: usize, room: usize) {
        self.room = room;
        self.page_top = self.page_top.min(lines.saturating_sub(room));
    }

    pub(crate) fn request_sent(&mut self, now: Instant) {
        self.requested_at = Some(now);
    }

    fn needs_detail(&self) -> bool {
        self.detail_open || self.focus == Focus::Page(Page::Explain)
    }

    /// Next request.
    pub(crate) fn next_request(&self) -> Request {
        Request::Sample(OptionalParts {
            detail: self.selected.filter(|_| self.needs_detail()),
            evictions: self.focus == Focus::Page(Page::Evictions),
        })
    }

    pub(crate) fn take(&mut self, response: Response, now: Instant) {
        match response {
            Response::Detail(detail) => self.detail = Some(detail),
            Response::Sample(result) => {
                self.requested_at = None;
                match result {
                    Err(error) => self.last_error = Some(error.to_string()),
                    Ok(mut sample) => {
                        self.last_error = None;
                        self.responded_at = now;
                        if let Some(detail) = sample.detail.take() {
                            self.detail = Some(detail);
                        }
                        self.samples.follow(*sample);
                    }
                }
            }
        }
        self.follow_selection();
    }

    pub(crate) fn apply(&mut self, action: Action) -> Effect {
        let was_selected = self.selected;
        match action {
            Action::Quit => return Effect::Quit,
            Action::Suspend => return Effect::Suspend,
            Action::Redraw => return Effect::Redraw,
            Action::Move(by) => self.move_by(by),
            Action::Page(by) => self.move_by(by.saturating_mul(self.room.max(1).cast_signed())),
            Action::First => self.select_at(0),
            Action::Last => self.select_at(usize::MAX),
            Action::Leave => self.leave(),
            Action::Detail => {
                self.detail_open = !self.detail_open;
                if self.selected.is_none() {
                    self.select_at(0);
                }
                // Without processes there are no details.
                self.detail_open &= self.selected.is_some();
            }
            Action::Sort(by) => self.sort_by(by),
            Action::Invert => self.settings.inverted ^= true,
            Action::Prompt(purpose) => {
                self.focus = Focus::Prompt(purpose);
                self.search.clear();
            }
            Action::NextMatch => self.select_match(1),
            Action::Type(character) => self.edit(|text| text.push(character)),
            Action::Erase => self.edit(|text| {
                text.pop();
            }),
            Action::EraseAll => self.edit(String::clear),
            Action::Accept => self.focus = Focus::Table,
            Action::Totals => {
                self.settings.figures = match self.settings.figures {
                    Figures::Rates => Figures::Totals,
                    Figures::Totals => Figures::Rates,
                };
            }
            Action::Ended => self.settings.ended ^= true,
            Action::Pause => self.paused ^= true,
            Action::Slower => self.change_interval(|step, now| step > now),
            Action::Faster => self.change_interval(|step, now| step < now),
            Action::Open(page) => {
                (self.focus, self.page_top) = (Focus::Page(page), 0);
                if page == Page::Explain && self.selected.is_none() {
                    self.select_at(0);
                }
            }
        }
        self.follow_selection();
        let opened = matches!(action, Action::Detail | Action::Open(Page::Explain));
        match self.selected.filter(|_| self.needs_detail()) {
            _ if action == Action::Open(Page::Evictions) => Effect::Send(self.next_request()),
            Some(selected) if self.detail().is_none() && (opened || was_selected != self.selected) => {
                Effect::Send(Request::Detail(selected))
            }
            _ => Effect::Draw,
        }
    }

    fn leave(&mut self) {
        match self.focus {
            Focus::Prompt(Purpose::Filter) => self.settings.filter.clear(),
            Focus::Table if self.detail_open => self.detail_open = false,
            Focus::Table => self.selected = None,
            Focus::Prompt(Purpose::Search) | Focus::Page(_) => {}
        }
        self.focus = Focus::Table;
    }

    fn edit(&mut self, edit: impl FnOnce(&mut String)) {
        match self.focus {
            Focus::Prompt(Purpose::Filter) => edit(&mut self.settings.filter),
            Focus::Prompt(Purpose::Search) => {
                edit(&mut self.search);
                self.select_match(0);
            }
            Focus::Table | Focus::Page(_) => {}
        }
    }

    /// Sorts by another visible column.
    fn sort_by(&mut self, by: isize) {
        let shown = columns::fitting(self.width);
        let at = shown.iter().position(|(column, _)| *column == self.settings.sort);
        let next = at.map_or(0, |at| at.cast_signed().saturating_add(by).rem_euclid(shown.len().cast_signed()));
        if let Some((column, _)) = shown.get(next.unsigned_abs()) {
            self.settings.sort = column;
            self.settings.inverted = false;
        }
    }

    fn change_interval(&mut self, further: impl Fn(Duration, Duration) -> bool) {
        let now = self.settings.interval;
        let steps = INTERVALS_MS.map(Duration::from_millis);
        let nearest = steps.into_iter().filter(|step| further(*step, now)).min_by_key(|step| step.abs_diff(now));
        self.settings.interval = nearest.unwrap_or(now);
    }

    // === selection ===

    fn move_by(&mut self, by: isize) {
        if matches!(self.focus, Focus::Page(_)) {
            self.page_top = self.page_top.saturating_add_signed(by);
            return;
        }
        let at = match self.selected {
            Some(_) => self.cursor.saturating_add_signed(by),
            None if by < 0 => usize::MAX,
            None => 0,
        };
        self.select_at(at);
    }

    fn select_at(&mut self, at: usize) {
        let rows = self.rows();
        self.selected = rows.get(at.min(rows.len().saturating_sub(1))).map(|row| ProcessKey::of(&row.process));
    }

    /// Selects the next match of the search, from `skip` rows after the selection; wraps around at
    /// the end.
    fn select_match(&mut self, skip: usize) {
        let rows = self.rows();
        let from = if self.selected.is_some() { self.cursor + skip } else { 0 };
        let found = (0..rows.len())
            .filter_map(|step| rows.get((from + step) % rows.len()))
            .find(|row| !self.search.is_empty() && matches(&row.process, &self.search));
        if let Some(row) = found {
            self.selected = Some(ProcessKey::of(&row.process));
        }
    }

    /// Keeps the selection at its process. If the process is no longer listed, selects the row in
    /// its place.
    fn follow_selection(&mut self) {
        let keys: Vec<_> = self.rows().iter().map(|row| ProcessKey::of(&row.process)).collect();
        let last = keys.len().saturating_sub(1);
        if let Some(selected) = self.selected {
            self.cursor = keys.iter().position(|key| *key == selected).unwrap_or(self.cursor.min(last));
            self.selected = keys.get(self.cursor).copied();
            self.top = self.top.clamp((self.cursor + 1).saturating_sub(self.room.max(1)), self.cursor);
        } else {
            (self.cursor, self.top) = (0, 0);
        }
        self.detail_open &= self.selected.is_some();
        self.top = self.top.min(keys.len().saturating_sub(self.room));
    }
}

fn has_ended(row: &Row) -> bool {
    row.process.state == "exited"
}

/// Whether a process's name, pid, user or cgroup contains `text`, ignoring case.
fn matches(process: &Process, text: &str) -> bool {
    let text = text.to_lowercase();
    let contains = |name: &str| name.to_lowercase().contains(&text);
    contains(&process.name)
        || contains(&process.pid.to_string())
        || process.user.as_deref().map_or_else(|| contains(&process.uid.to_string()), contains)
        || process.cgroup.as_deref().is_some_and(contains)
}

#[cfg(test)]
mod tests;
