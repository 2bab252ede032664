//! The driver's detection of thrashing, page by page: memory that CPU and GPU take from one another within a short time. It then holds one of them back for
//! a while, and in the end leaves a page where it is and maps it for the other.
//!
//! The rules are those of `uvm_perf_thrashing.c` of nvidia-uvm 550.163.01, for one GPU that can map host memory and a CPU that cannot map the GPU's. What is
//! evicted does not count.

mod page;

use std::collections::{BTreeMap, VecDeque};

use page::{Page, Pin};

use crate::{
    machine::{self, MAX_EVENTS},
    mask::{BlockMask, PAGES_PER_BLOCK, PageMask},
};

/// What is due within this is due (`TIMER_GRANULARITY_NS`).
const TIMER_NS: u64 = 20_000;

/// Who touches memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    /// The host's.
    Cpu,
    /// The one GPU.
    Gpu,
}

/// What the driver does with a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// Brings the page to whoever faulted.
    Serve,
    /// Nothing until then.
    Throttle {
        until_ns: u64,
        /// It was not held back before.
        begins: bool,
    },
    /// Leaves the page there, and maps it for all who can map it.
    Pin {
        on: Processor,
        /// It was not pinned before.
        begins: bool,
    },
}

#[derive(Clone, Debug, Default)]
struct Block {
    last: Option<(u64, Processor)>,
    /// Only where two processors took something of the block within a lapse.
    pages: Option<Vec<Page>>,
    thrashing: PageMask,
    last_thrashing_ns: Option<u64>,
    resets: u64,
    /// From then on it is never reset as a whole: the driver counts pins, and none back.
    was_pinned: bool,
}

/// What the driver knows of a process's blocks.
pub(crate) struct Thrashing<'m> {
    parameters: &'m machine::Thrashing,
    blocks: BTreeMap<u64, Block>,
    /// Block and page, by when they are unpinned.
    pinned: VecDeque<(u64, u64, usize)>,
}

impl Block {
    fn reset_page(&mut self, page: usize) {
        if let Some(state) = self.pages.as_mut().and_then(|pages| pages.get_mut(page)) {
            state.reset();
        }
        self.thrashing = self.thrashing & !PageMask::of_page(page);
    }

    /// Whether nothing has thrashed for so long that all is forgotten, which happens so often and no more.
    fn is_over(&self, parameters: &machine::Thrashing, now_ns: u64) -> bool {
        let since_ns = self.last_thrashing_ns.map_or(0, |last_ns| now_ns.saturating_sub(last_ns));
        since_ns > parameters.epoch_ns() && !self.was_pinned && self.resets < parameters.max_resets.value
    }

    /// Forgets all pages.
    fn reset(&mut self) {
        *self = Self { resets: self.resets + 1, was_pinned: self.was_pinned, ..Self::default() };
    }
}

impl<'m> Thrashing<'m> {
    pub(crate) fn new(parameters: &'m machine::Thrashing) -> Self {
        Self { parameters, blocks: BTreeMap::new(), pinned: VecDeque::new() }
    }

    /// Pages that are neither brought along by the tree nor make it bring others along.
    pub(crate) fn pages(&self, block: u64) -> PageMask {
        self.blocks.get(&block).map_or(PageMask::default(), |block| block.thrashing)
    }

    /// Pages of a block were copied because of faults; those of them that are now found thrashing.
    pub(crate) fn moved(&mut self, block: u64, copied: PageMask, to: Processor, now_ns: u64) -> PageMask {
        let parameters = self.parameters;
        let mut found = PageMask::default();
        if !parameters.enabled.value || copied.is_empty() {
            return found;
        }
        let lapse_ns = parameters.lapse_ns.value;
        let is_quick = |last_ns| now_ns.saturating_sub(last_ns) <= lapse_ns;
        let state = self.blocks.entry(block).or_default();
        if state.pages.is_none() && state.last.is_some_and(|(last_ns, last)| last != to && is_quick(last_ns)) {
            state.pages = Some(vec![Page::default(); PAGES_PER_BLOCK]);
        }
        state.last = Some((now_ns, to));
        let threshold = parameters.threshold.value;
        let Block { pages: Some(pages), thrashing, last_thrashing_ns, .. } = state else { return found };
        for (page, state) in pages.iter_mut().enumerate().filter(|(page, _)| copied.has(*page)) {
            state.users.set(to, true);
            let Some(last_ns) = state.last_ns.replace(now_ns) else { continue };
            if is_quick(last_ns) {
                state.events = (state.events + 1).min(MAX_EVENTS);
                if state.events == threshold {
                    found.insert(page);
                }
                if state.events >= threshold {
                    *last_thrashing_ns = Some(now_ns);
                }
            } else if state.events >= threshold && state.pin.is_none() {
                state.reset();
                *thrashing = *thrashing & !PageMask::of_page(page);
            }
        }
        *thrashing = *thrashing | found;
        found
    }

    /// What to do with a fault on a page; it may be resident on the host.
    pub(crate) fn hint(&mut self, (block, page): (u64, usize), by: Processor, is_on_host: bool, now_ns: u64) -> Hint {
        let parameters = self.parameters;
        let Some(state) = self.blocks.get_mut(&block) else { return Hint::Serve };
        if state.is_over(parameters, now_ns) {
            state.reset();
            return Hint::Serve;
        }
        let Some(page_state) = state.pages.as_mut().and_then(|pages| pages.get_mut(page)) else { return Hint::Serve };
        if page_state.events < parameters.threshold.value {
            return Hint::Serve;
        }
        if page_state.throttled.has(by) {
            if now_ns < page_state.period_end_ns && page_state.spared != Some(by) {
                return Hint::Throttle { until_ns: page_state.period_end_ns, begins: false };
            }
            page_state.release(by);
        }
        let since_ns = page_state.last_ns.map_or(0, |last_ns| now_ns.saturating_sub(last_ns));
        if since_ns > parameters.lapse_ns.value && page_state.pin.is_none() {
            return Hint::Serve;
        }
        page_state.users.set(by, true);
        page_state.begin_period(by, now_ns, parameters.nap_ns());
        let hint = page_state.hint(by, is_on_host, parameters.pin_threshold.value);
        match hint {
            Hint::Throttle { begins: true, .. } => {
                page_state.throttled.set(by, true);
                if page_state.pin.is_none() {
                    page_state.throttles = page_state.throttles.saturating_add(1);
                }
            }
            Hint::Pin { on, begins } => {
                if begins || is_on_host != (on == Processor::Cpu) {
                    page_state.release_all();
                }
                let until_ns = match page_state.pin {
                    Some(pin) => pin.until_ns,
                    None => parameters.pinned_until_ns(now_ns),
                };
                page_state.pin = Some(Pin { on, until_ns });
                page_state.throttles = 0;
                state.was_pinned = true;
                if begins && until_ns < u64::MAX {
                    self.pinned.push_back((until_ns, block, page));
                }
            }
            Hint::Serve | Hint::Throttle { .. } => {}
        }
        hint
    }

    /// Which of these pages are pinned: that they move is no event.
    pub(crate) fn pinned(&self, block: u64, pages: PageMask) -> PageMask {
        let Some(states) = self.blocks.get(&block).and_then(|block| block.pages.as_ref()) else {
            return PageMask::default();
        };
        let pinned = states.iter().enumerate().filter(|(_, state)| state.pin.is_some());
        pinned.fold(PageMask::default(), |mask, (page, _)| mask | PageMask::of_page(page)) & pages
    }

    /// Pages were moved by request: what the program asks for goes before what the driver finds.
    pub(crate) fn forget(&mut self, block: u64, pages: PageMask) {
        if let Some(state) = self.blocks.get_mut(&block) {
            (state.thrashing & pages).iter().for_each(|page| state.reset_page(page));
        }
    }

    /// The next page whose time is over, by block, and forgets what it was.
    pub(crate) fn unpin(&mut self, now_ns: u64) -> Option<(u64, usize)> {
        while let Some(&(until_ns, block, page)) = self.pinned.front() {
            if until_ns > now_ns.saturating_add(TIMER_NS) {
                return None;
            }
            self.pinned.pop_front();
            let Some(state) = self.blocks.get_mut(&block) else { continue };
            let pin = state.pages.as_ref().and_then(|pages| pages.get(page)).and_then(|state| state.pin);
            // It may have been forgotten meanwhile, and pinned anew.
            if pin.is_some_and(|pin| pin.until_ns == until_ns) {
                state.reset_page(page);
                return Some((block, page));
            }
        }
        None
    }
}
