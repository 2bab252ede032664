//! Watchdog of systemd (`WatchdogSec=`): a keep-alive for as long as the parts of uvmd make progress.
//!
//! The keep-alive itself shows that the event loop turns. Before each, the collector must take a reading, and the
//! loops of other threads must have turned within a period. If a part hangs, there is no keep-alive; systemd then
//! kills uvmd and starts it again. The kernel removes the probes, and the next uvmd withdraws the advice.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use collector::Snapshots;
use sd_notify::NotifyState;
use tokio::time::{self, Instant};
use web::Warnings;

use super::{notify, status, status_of};

/// Keep-alives in a period of the watchdog: one that is late by some scheduling is not the last.
const PER_PERIOD: u32 = 3;

/// Turns of a thread's loop: a count that grows while it works.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    /// Name of the thread in messages.
    thread: &'static str,
    count: Arc<AtomicU64>,
}

impl Turns {
    /// Count of 0 for a thread of this name.
    pub(crate) fn of(thread: &'static str) -> Self {
        Self { thread, count: Arc::default() }
    }

    /// Counts a turn.
    pub(crate) fn turn(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Loop that is watched.
#[derive(Debug)]
struct Watched<F> {
    thread: &'static str,
    turns: F,
    /// Count at the last change, and the time at which the change was observed.
    last: (u64, Instant),
    is_stalled: bool,
}

impl<F: Fn() -> u64> Watched<F> {
    fn new(thread: &'static str, turns: F) -> Self {
        let last = (turns(), Instant::now());
        Self { thread, turns, last, is_stalled: false }
    }

    /// Whether it has turned within the period.
    fn makes_progress(&mut self, period: Duration) -> bool {
        let count = (self.turns)();
        if count != self.last.0 {
            self.last = (count, Instant::now());
        }
        let stalls = self.last.1.elapsed() > period;
        if stalls && !self.is_stalled {
            report_stall(self.thread);
        }
        self.is_stalled = stalls;
        !stalls
    }
}

/// Keeps systemd informed while uvmd works: status at each change, keep-alive while there is progress. Ends with
/// the collector.
pub(crate) async fn while_working(snapshots: Snapshots, loops: Vec<Turns>, warnings: Warnings) {
    let statuses = report_statuses(snapshots.clone(), warnings);
    let Some(period) = sd_notify::watchdog_enabled() else { return statuses.await };
    let reading = || {
        let snapshots = snapshots.clone();
        async move { snapshots.fresh().await.is_some() }
    };
    let watched = |Turns { thread, count }| Watched::new(thread, move || count.load(Ordering::Relaxed));
    let loops = loops.into_iter().map(watched).collect();
    tokio::select! {
        () = statuses => {}
        () = keep_alive(period, reading, loops, || notify(&[NotifyState::Watchdog])) => {}
    }
}

async fn report_statuses(mut snapshots: Snapshots, warnings: Warnings) {
    let mut reported = String::new();
    let mut snapshot = Some(snapshots.latest());
    while let Some(current) = snapshot {
        let text = status_of(&current, &warnings);
        if text != reported {
            status(&text);
            reported = text;
        }
        snapshot = snapshots.next().await;
    }
}

/// Keep-alives while uvmd stops, which has deadlines of its own.
pub(crate) async fn while_stopping() {
    let Some(period) = sd_notify::watchdog_enabled() else { return std::future::pending().await };
    let mut ticks = time::interval(period / PER_PERIOD);
    loop {
        ticks.tick().await;
        notify(&[NotifyState::Watchdog]);
    }
}

/// Calls `ping` [`PER_PERIOD`] times a period, while `reading` completes and all loops turn within a period.
async fn keep_alive<R: Future<Output = bool>, F: Fn() -> u64>(
    period: Duration,
    reading: impl Fn() -> R,
    mut loops: Vec<Watched<F>>,
    ping: impl Fn(),
) {
    let pause = period / PER_PERIOD;
    loop {
        time::sleep(pause).await;
        let mut reading = pin!(reading());
        let read = if let Ok(read) = time::timeout(pause, &mut reading).await {
            read
        } else {
            report_stall("the collector");
            // A late reading is not repeated: its keep-alive may still be in time.
            reading.await
        };
        if !read {
            // The end of the collector ends uvmd.
            return;
        }
        // All are checked, so that each loop that stalls is reported.
        let mut all_make_progress = true;
        for each in &mut *loops {
            all_make_progress &= each.makes_progress(period);
        }
        if all_make_progress {
            ping();
        }
    }
}

fn report_stall(part: &str) {
    tracing::error!("{part} makes no progress: no keep-alive to systemd");
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, future};

    use super::*;

    const PERIOD: Duration = Duration::from_mins(1);

    /// Keep-alives in ten minutes.
    async fn pings<R: Future<Output = bool>>(reading: impl Fn() -> R, turns: impl Fn() -> u64) -> u32 {
        let count = Cell::new(0);
        let loops = vec![Watched::new("the loop", turns)];
        let kept = keep_alive(PERIOD, reading, loops, || count.set(count.get() + 1));
        let _ = time::timeout(PERIOD * 10, kept).await;
        count.get()
    }

    /// A loop that turns each second.
    fn turning() -> impl Fn() -> u64 {
        let begin = Instant::now();
        move || begin.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn three_keep_alives_a_period_while_all_parts_make_progress() {
        assert_eq!(pings(|| future::ready(true), turning()).await, 30, "one each 20 s, the first after 20 s");
    }

    #[tokio::test(start_paused = true)]
    async fn no_keep_alive_while_the_collector_takes_no_reading() {
        assert_eq!(pings(future::pending, turning()).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reading_that_takes_half_a_period_is_followed_by_a_keep_alive_in_time() {
        let slow = || async {
            time::sleep(PERIOD / 2).await;
            true
        };
        let begin = Instant::now();
        let first = Cell::new(None);
        let watchdog = keep_alive(PERIOD, slow, vec![Watched::new("the loop", turning())], || {
            first.get().is_none().then(|| first.set(Some(begin.elapsed())));
        });
        let _ = time::timeout(PERIOD, watchdog).await;
        assert_eq!(first.get(), Some(Duration::from_secs(50)), "a pause of 20 s and a reading of 30 s");
    }

    #[tokio::test(start_paused = true)]
    async fn no_keep_alive_once_a_loop_has_not_turned_for_a_period() {
        assert_eq!(pings(|| future::ready(true), || 7).await, 3, "20, 40 and 60 s after its last turn");
        let turns: Box<dyn Fn() -> u64> = Box::new(turning());
        let loops = vec![Watched::new("a loop", turns), Watched::new("another", Box::new(|| 7))];
        let count = Cell::new(0);
        let kept = keep_alive(PERIOD, || future::ready(true), loops, || count.set(count.get() + 1));
        let _ = time::timeout(PERIOD * 10, kept).await;
        assert_eq!(count.get(), 3, "one loop does not speak for another");
    }

    #[tokio::test(start_paused = true)]
    async fn a_loop_slower_than_the_keep_alives_is_no_stall() {
        let begin = Instant::now();
        assert_eq!(pings(|| future::ready(true), move || begin.elapsed().as_secs() / 50).await, 30);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_collector_ends_the_keep_alives() {
        keep_alive(PERIOD, || future::ready(false), Vec::<Watched<fn() -> u64>>::new(), || ()).await;
    }
}
