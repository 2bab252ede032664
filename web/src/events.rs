//! Events for stream readers: the last ones are retained, and each reader takes them at its pace.
//!
//! Publishers never wait. A reader that is too slow gets the number of events it missed, and
//! continues with the oldest retained one.

mod tally;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use api::decision::Event;
pub(crate) use tally::Tally;
use tokio::sync::watch;

/// Number of retained events.
const RETAINED: usize = 1024;

/// Stream of events. Cheap to clone; all clones share their state.
#[derive(Clone, Debug)]
pub struct Events(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// Identifies this run of the service, as event numbers begin anew with each.
    run: u64,
    state: Mutex<State>,
    /// Number of the next event; `None` after the end of the stream.
    next: Mutex<Option<watch::Sender<u64>>>,
}

#[derive(Debug, Default)]
struct State {
    retained: VecDeque<Arc<Event>>,
    /// Number of the first retained event.
    first: u64,
    dropped: u64,
    tally: Tally,
}

/// Reader of events, in order.
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
    /// Publishes an event.
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

    /// Counts an event in the metrics, and publishes it to nobody.
    pub fn count(&self, event: &Event) {
        self.state().tally.add(event);
    }

    /// Ends the stream for all readers.
    pub fn end(&self) {
        *self.next() = None;
    }

    /// Reads new events, or those after the event with this id.
    pub(crate) fn read(&self, behind: Option<&str>) -> Reader {
        let next = self.next().as_ref().map(watch::Sender::subscribe);
        let state = self.state();
        let end = state.first + state.retained.len() as u64;
        let at = match behind.map(|name| {
            name.split_once('-').and_then(|(run, number)| {
                (run.parse::<u64>().ok()? == self.0.run).then_some(number.parse::<u64>().ok()?.saturating_add(1))
            })
        }) {
            // All retained events: the id is of another run.
            Some(None) => state.first,
            Some(Some(at)) => at.min(end),
            None => end,
        };
        Reader { events: self.clone(), at, next }
    }

    /// Counts of what policies did since the start.
    pub(crate) fn tally(&self) -> Tally {
        self.state().tally.clone()
    }

    /// Events dropped because readers were too slow.
    pub(crate) fn dropped(&self) -> u64 {
        self.state().dropped
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> MutexGuard<'_, Option<watch::Sender<u64>>> {
        self.0.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reader {
    /// Waits for the next event, with its id; `None` at the end of the stream.
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
            let dropped = state.first - *at;
            state.dropped += dropped;
            *at = state.first;
            // Id of the last dropped event: a reader that resumes after it misses no other.
            let name = format!("{}-{}", events.0.run, *at - 1);
            return Some((name, Arc::new(Event::dropped(dropped, SystemTime::now()))));
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
    async fn a_reader_resumes_after_its_last_event() {
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
    async fn a_slow_reader_gets_the_number_of_dropped_events() {
        let events = Events::default();
        let mut reader = events.read(None);
        (0..RETAINED as u64 + 5).for_each(|number| events.tell(event(number)));
        let (name, dropped) = reader.next().await.unwrap();
        assert_eq!((dropped.r#type.as_str(), dropped.dropped), ("events_dropped", Some(5)));
        assert_eq!(reader.next().await.unwrap().1.decision_id, Some(5));
        assert_eq!(events.dropped(), 5);
        assert_eq!(events.read(Some(&name)).next().await.unwrap().1.decision_id, Some(5));
    }
}
