//! State of one page, and decisions about faults on it while it thrashes.

use super::{Hint, Processor};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Processors {
    cpu: bool,
    gpu: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Pin {
    pub(super) on: Processor,
    pub(super) until_ns: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Page {
    pub(super) last_ns: Option<u64>,
    /// Moves within a lapse of the previous one.
    pub(super) events: u8,
    pub(super) users: Processors,
    pub(super) throttled: Processors,
    /// Processor that is not throttled in the current period.
    pub(super) spared: Option<Processor>,
    pub(super) period_end_ns: u64,
    /// Throttles since the last pin.
    pub(super) throttles: u8,
    pub(super) pin: Option<Pin>,
}

impl Processors {
    pub(super) const CPU: Self = Self { cpu: true, gpu: false };
    pub(super) const GPU: Self = Self { cpu: false, gpu: true };

    pub(super) fn has(self, processor: Processor) -> bool {
        match processor {
            Processor::Cpu => self.cpu,
            Processor::Gpu => self.gpu,
        }
    }

    pub(super) fn set(&mut self, processor: Processor, is_in: bool) {
        match processor {
            Processor::Cpu => self.cpu = is_in,
            Processor::Gpu => self.gpu = is_in,
        }
    }
}

impl Page {
    /// Ends the throttling of a processor. The period ends with the last one.
    pub(super) fn release(&mut self, processor: Processor) {
        if self.throttled.has(processor) {
            self.throttled.set(processor, false);
            if self.throttled == Processors::default() {
                self.period_end_ns = 0;
            }
        }
    }

    pub(super) fn release_all(&mut self) {
        for processor in [Processor::Cpu, Processor::Gpu] {
            self.release(processor);
        }
    }

    /// Begins a throttling period for all processors but one, unless a period is running. No
    /// processor is spared twice in a row.
    pub(super) fn begin_period(&mut self, by: Processor, now_ns: u64, nap_ns: u64) {
        if now_ns > self.period_end_ns {
            self.period_end_ns = now_ns.saturating_add(nap_ns);
            self.spared = if self.spared == Some(by) { None } else { Some(by) };
        } else if self.spared.is_none() {
            self.spared = Some(by);
        }
    }

    pub(super) fn hint(&self, by: Processor, is_on_host: bool, pin_threshold: u8) -> Hint {
        let pin = |on| Hint::Pin { on, begins: self.pin.is_none() };
        let throttle = Hint::Throttle { until_ns: self.period_end_ns, begins: !self.throttled.has(by) };
        if by == Processor::Cpu && is_on_host && self.users == Processors::CPU {
            return Hint::Serve;
        }
        match (self.pin, self.spared == Some(by)) {
            (Some(_), true) if by == Processor::Gpu && self.users == Processors::GPU => pin(Processor::Gpu),
            // All processors can map host memory.
            (Some(_), true) => pin(Processor::Cpu),
            (Some(Pin { on: Processor::Gpu, .. }), false) if by == Processor::Cpu => throttle,
            (Some(Pin { on, .. }), false) => pin(on),
            (None, false) => throttle,
            (None, true) if self.throttles >= pin_threshold => pin(by),
            (None, true) => Hint::Serve,
        }
    }

    /// Resets the page, except for the number of throttles and the spared processor.
    pub(super) fn reset(&mut self) {
        self.release_all();
        (self.last_ns, self.events, self.users, self.pin) = (None, 0, Processors::default(), None);
    }
}
