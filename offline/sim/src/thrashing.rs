//! The driver's thrashing detection, page by page: contention of CPU and GPU for memory within a
//! short time. The driver throttles one of them for a while. In the end it pins the page and maps
//! it for the other.
//!
//! The rules are those of `uvm_perf_thrashing.c` of nvidia-uvm 550.163.01, for one GPU that can map
//! host memory and a CPU that cannot map the GPU's. Evictions do not count.

mod page;

use std::collections::{BTreeMap, VecDeque};

use page::{Page, Pin};

use crate::{
    machine::{self, MAX_EVENTS},
    mask::{BlockMask, PAGES_PER_BLOCK, PageMask},
};

/// Granularity of the driver's timer (`TIMER_GRANULARITY_NS`): pins that expire within it have
/// expired.
const TIMER_NS: u64 = 20_000;

/// Processor that accesses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Processor {
    /// The host's CPU.
    Cpu,
    /// The one GPU.
    Gpu,
}

/// Decision of the driver about a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    /// Makes the page resident at the faulting processor.
    Serve,
    /// Delays the service until then.
    Throttle {
        until_ns: u64,
        /// Whether the processor was not throttled before.
        begins: bool,
    },
    /// Leaves the page there, and maps it for all processors that can map it.
    Pin {
        on: Processor,
        /// Whether the page was not pinned before.
        begins: bool,
    },
}

#[derive(Clone, Debug, Default)]
struct Block {
    last: Option<(u64, Processor)>,
    /// State of pages, once two processors took parts of the block within a lapse.
    pages: Option<Vec<Page>>,
    thrashing: PageMask,
    last_thrashing_ns: Option<u64>,
    resets: u64,
    /// Whether a page was ever pinned. Such a block is never reset as a whole: the driver counts
    /// pins, and never decrements the count.
    was_pinned: bool,
}

/// Thrashing state of a process's blocks.
pub(crate) struct Thrashing<'m> {
    parameters: &'m machine::Thrashing,
    blocks: BTreeMap<u64, Block>,
    /// Pinned pages as (end of the pin, block, page), in that order.
    pinned: VecDeque<(u64, u64, usize)>,
}

impl Block {
    fn reset_page(&mut self, page: usize) {
        if let Some(state) = self.pages.as_mut().and_then(|pages| pages.get_mut(page)) {
            state.reset();
        }
        self.thrashing = self.thrashing & !PageMask::of_page(page);
    }

    /// Whether an epoch without thrashing has passed, and resets are left.
    fn epoch_elapsed(&self, parameters: &machine::Thrashing, now_ns: u64) -> bool {
        let since_ns = self.last_thrashing_ns.map_or(0, |last_ns| now_ns.saturating_sub(last_ns));
        since_ns > parameters.epoch_ns() && !self.was_pinned && self.resets < parameters.max_resets.value
    }

    /// Resets all pages.
    fn reset(&mut self) {
        *self = Self { resets: self.resets + 1, was_pinned: self.was_pinned, ..Self::default() };
    }
}

impl<'m> Thrashing<'m> {
    pub(crate) fn new(parameters: &'m machine::Thrashing) -> Self {
        Self { parameters, blocks: BTreeMap::new(), pinned: VecDeque::new() }
    }

    /// Thrashing pages of a block. The tree prefetcher neither adds them nor expands faults on
    /// them.
    pub(crate) fn pages(&self, block: u64) -> PageMask {
        self.blocks.get(&block).map_or(PageMask::default(), |block| block.thrashing)
    }

    /// Records that pages of a block were copied because of faults; those that begin to thrash.
    pub(crate) fn record_move(&mut self, block: u64, copied: PageMask, to: Processor, now_ns: u64) -> PageMask {
        let parameters = self.parameters;
        let mut detected = PageMask::default();
        if !parameters.enabled.value || copied.is_empty() {
            return detected;
        }
        let lapse_ns = parameters.lapse_ns.value;
        let is_quick = |last_ns| now_ns.saturating_sub(last_ns) <= lapse_ns;
        let state = self.blocks.entry(block).or_default();
        if state.pages.is_none() && state.last.is_some_and(|(last_ns, last)| last != to && is_quick(last_ns)) {
            state.pages = Some(vec![Page::default(); PAGES_PER_BLOCK]);
        }
        state.last = Some((now_ns, to));
        let threshold = parameters.threshold.value;
        let Block { pages: Some(pages), thrashing, last_thrashing_ns, .. } = state else { return detected };
        for (page, state) in pages.iter_mut().enumerate().filter(|(page, _)| copied.has(*page)) {
            state.users.set(to, true);
            let Some(last_ns) = state.last_ns.replace(now_ns) else { continue };
            if is_quick(last_ns) {
                state.events = (state.events + 1).min(MAX_EVENTS);
                if state.events == threshold {
                    detected.insert(page);
                }
                if state.events >= threshold {
                    *last_thrashing_ns = Some(now_ns);
                }
            } else if state.events >= threshold && state.pin.is_none() {
                state.reset();
                *thrashing = *thrashing & !PageMask::of_page(page);
            }
        }
        *thrashing = *thrashing | detected;
        detected
    }

    /// Decides about a fault on a page.
    pub(crate) fn hint(&mut self, (block, page): (u64, usize), by: Processor, is_on_host: bool, now_ns: u64) -> Hint {
        let parameters = self.parameters;
        let Some(state) = self.blocks.get_mut(&block) else { return Hint::Serve };
        if state.epoch_elapsed(parameters, now_ns) {
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

    /// Pinned pages among these; their moves are no events.
    pub(crate) fn pinned(&self, block: u64, pages: PageMask) -> PageMask {
        let Some(states) = self.blocks.get(&block).and_then(|block| block.pages.as_ref()) else {
            return PageMask::default();
        };
        let pinned = states.iter().enumerate().filter(|(_, state)| state.pin.is_some());
        pinned.fold(PageMask::default(), |mask, (page, _)| mask | PageMask::of_page(page)) & pages
    }

    /// Resets pages that were moved by request. Requests of the program take precedence over
    /// detected thrashing.
    pub(crate) fn reset_pages(&mut self, block: u64, pages: PageMask) {
        if let Some(state) = self.blocks.get_mut(&block) {
            (state.thrashing & pages).iter().for_each(|page| state.reset_page(page));
        }
    }

    /// Resets the next page whose pin has expired; its block and index.
    pub(crate) fn unpin(&mut self, now_ns: u64) -> Option<(u64, usize)> {
        while let Some(&(until_ns, block, page)) = self.pinned.front() {
            if until_ns > now_ns.saturating_add(TIMER_NS) {
                return None;
            }
            self.pinned.pop_front();
            let Some(state) = self.blocks.get_mut(&block) else { continue };
            let pin = state.pages.as_ref().and_then(|pages| pages.get(page)).and_then(|state| state.pin);
            // The page may have been reset since, and pinned again.
            if pin.is_some_and(|pin| pin.until_ns == until_ns) {
                state.reset_page(page);
                return Some((block, page));
            }
        }
        None
    }
}
