//! What happens, for those who listen: the last events are kept, and each reader takes them at its own pace.
//!
//! Nobody is waited for. Who is so slow that events were forgotten before they were read is told how many, and goes on with what there is.

mod tally;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use model::api::decision::Event;
pub(crate) use tally::Tally;
use tokio::sync::watch;

/// How many are kept.
const RETAINED: usize = 1024;

/// Where events are told, and read. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub struct Events(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Names this run of the service: numbers begin anew with each.
    run: u64,
    state: Mutex<State>,
    /// The number of the next event; gone once nothing more comes.
    next: Mutex<Option<watch::Sender<u64>>>,
}

#[derive(Debug, Default)]
struct State {
    retained: VecDeque<Arc<Event>>,
    /// The number of the first that is kept.
    first: u64,
    lost: u64,
    tally: Tally,
}

/// Reads events, one after the other.
#[derive(Debug)]
pub(crate) struct Reader {
    events: Events,
    at: u64,
    next: Option<watch::Receiver<u64>>,
}

impl Default for Events {
    fn default() -> Self {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        let run = u64::try_from(since.as_millis()).unwrap_or_default();
        let (next, _) = watch::channel(0);
        Self(Arc::new(Shared { run, state: Mutex::default(), next: Mutex::new(Some(next)) }))
    }
}

impl Events {
    /// Tells what happened.
    pub fn tell(&self, event: Event) {
        let next = {
            let mut state = self.state();
            state.tally.add(&event);
            state.retained.push_back(Arc::new(event));
            if state.retained.len() > RETAINED {
                state.retained.pop_front();
                state.first += 1;
            }
            state.first + state.retained.len() as u64
        };
        if let Some(sender) = &*self.next() {
            sender.send_replace(next);
        }
    }

    /// Nothing more happens: whoever reads comes to an end.
    pub fn end(&self) {
        *self.next() = None;
    }

    /// Reads from here on, or from behind the event of this name.
    pub(crate) fn read(&self, behind: Option<&str>) -> Reader {
        let next = self.next().as_ref().map(watch::Sender::subscribe);
        let state = self.state();
        let end = state.first + state.retained.len() as u64;
        let at = match behind.map(|name| {
            name.split_once('-').and_then(|(run, number)| {
                (run.parse::<u64>().ok()? == self.0.run).then_some(number.parse::<u64>().ok()?.saturating_add(1))
            })
        }) {
            // All that there is: what was read before was of another run.
            Some(None) => state.first,
            Some(Some(at)) => at.min(end),
            None => end,
        };
        Reader { events: self.clone(), at, next }
    }

    /// What was done by policies, since the beginning.
    pub(crate) fn tally(&self) -> Tally {
        self.state().tally.clone()
    }

    /// Events that readers were too slow for.
    pub(crate) fn lost(&self) -> u64 {
        self.state().lost
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> MutexGuard<'_, Option<watch::Sender<u64>>> {
        self.0.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reader {
    /// The next event with its name; waits for it. `None` once there will be none.
    pub(crate) async fn next(&mut self) -> Option<(String, Arc<Event>)> {
        loop {
            if let Some(event) = self.take() {
                return Some(event);
            }
            self.next.as_mut()?.changed().await.ok()?;
        }
    }

    fn take(&mut self) -> Option<(String, Arc<Event>)> {
        let Self { events, at, .. } = self;
        let mut state = events.state();
        if *at < state.first {
            let lost = state.first - *at;
            state.lost += lost;
            *at = state.first;
            // The name of the last that was lost: who comes back by it misses nothing else.
            let name = format!("{}-{}", events.0.run, *at - 1);
            return Some((name, Arc::new(Event::dropped(lost, SystemTime::now()))));
        }
        let index = usize::try_from(*at - state.first).ok()?;
        let event = Arc::clone(state.retained.get(index)?);
        let name = format!("{}-{at}", events.0.run);
        *at += 1;
        Some((name, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(number: u64) -> Event {
        Event { decision_id: Some(number), ..Event::default() }
    }

    #[tokio::test]
    async fn a_reader_gets_what_happens_from_then_on_in_order() {
        let events = Events::default();
        events.tell(event(0));
        let mut reader = events.read(None);
        events.tell(event(1));
        events.tell(event(2));
        assert_eq!(reader.next().await.unwrap().1.decision_id, Some(1));
        assert_eq!(reader.next().await.unwrap().1.decision_id, Some(2));
        events.end();
        assert!(reader.next().await.is_none());
    }

    #[tokio::test]
    async fn who_comes_back_goes_on_behind_what_it_had() {
        let events = Events::default();
        let mut reader = events.read(None);
        (0..3).for_each(|number| events.tell(event(number)));
        let (name, _) = reader.next().await.unwrap();
        assert_eq!(events.read(Some(&name)).next().await.unwrap().1.decision_id, Some(1));
        for of_another_run in ["1-1", "x", ""] {
            assert_eq!(events.read(Some(of_another_run)).next().await.unwrap().1.decision_id, Some(0));
        }
    }

    #[tokio::test]
    async fn who_is_too_slow_is_told_how_much_it_missed() {
        let events = Events::default();
        let mut reader = events.read(None);
        (0..RETAINED as u64 + 5).for_each(|number| events.tell(event(number)));
        let (name, lost) = reader.next().await.unwrap();
        assert_eq!((lost.r#type.as_str(), lost.dropped), ("events_dropped", Some(5)));
        assert_eq!(reader.next().await.unwrap().1.decision_id, Some(5));
        assert_eq!(events.lost(), 5);
        assert_eq!(events.read(Some(&name)).next().await.unwrap().1.decision_id, Some(5));
    }
}
