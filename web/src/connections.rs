//! Who may stay connected when there are more clients than places.
//!
//! A place is only sure while its request is being answered, which is short. Whoever sends no request, sends one slowly or does not
//! take the answer makes room for the next client, the longest idle first: nobody can hold the service by holding connections.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::{
    sync::Notify,
    task::{self, AbortHandle, JoinSet},
    time::{self, Duration, Instant},
};

/// Time that everyone has to send a request or to take an answer, however many others come.
const MOMENT: Duration = Duration::from_millis(50);

/// The connections being served.
pub(crate) struct Connections {
    limit: usize,
    tasks: JoinSet<()>,
    places: Vec<Place>,
    answered: Arc<Notify>,
}

struct Place {
    activity: Activity,
    task: AbortHandle,
}

/// What one connection is doing, as it tells itself.
#[derive(Clone)]
pub(crate) struct Activity {
    /// Since when no request is being answered; `None` while one is.
    idle_since: Arc<Mutex<Option<Instant>>>,
    answered: Arc<Notify>,
}

/// A request is being answered until this is dropped.
pub(crate) struct Answering(Activity);

impl Connections {
    /// At most so many, and at least one.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), tasks: JoinSet::new(), places: Vec::new(), answered: Arc::default() }
    }

    /// Serves one more, once there is a place for it.
    pub(crate) async fn add<F>(&mut self, serve: impl FnOnce(Activity) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.make_room().await;
        let activity =
            Activity { idle_since: Arc::new(Mutex::new(Some(Instant::now()))), answered: Arc::clone(&self.answered) };
        let task = self.tasks.spawn(serve(activity.clone()));
        self.places.push(Place { activity, task });
    }

    async fn make_room(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        while self.tasks.len() >= self.limit {
            match self.longest_idle() {
                Some((since, place)) if since.elapsed() >= MOMENT => {
                    // Where uvmd itself was held up, a request may lie unread. So before anyone is closed, there is a turn in which the kernel
                    // says who can read, and one in which they do.
                    task::yield_now().await;
                    task::yield_now().await;
                    if place.activity.idle_since() == Some(since) {
                        place.task.abort();
                        self.tasks.join_next().await;
                    }
                }
                Some((since, _)) => tokio::select! {
                    _ = self.tasks.join_next() => {}
                    () = time::sleep_until(since + MOMENT) => {}
                },
                None => tokio::select! {
                    _ = self.tasks.join_next() => {}
                    () = self.answered.notified() => {}
                },
            }
        }
        self.places.retain(|place| !place.task.is_finished());
    }

    fn longest_idle(&self) -> Option<(Instant, &Place)> {
        let places = self.places.iter().filter(|place| !place.task.is_finished());
        places.filter_map(|place| Some((place.activity.idle_since()?, place))).min_by_key(|(since, _)| *since)
    }

    /// Waits until all have ended by themselves.
    pub(crate) async fn ended(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

impl Activity {
    pub(crate) fn answering(&self) -> Answering {
        self.set(None);
        Answering(self.clone())
    }

    fn idle_since(&self) -> Option<Instant> {
        *self.idle_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, idle_since: Option<Instant>) {
        *self.idle_since.lock().unwrap_or_else(PoisonError::into_inner) = idle_since;
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        let Self(activity) = self;
        activity.set(Some(Instant::now()));
        activity.answered.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        thread,
    };

    use tokio::{io::AsyncReadExt, net::UnixStream};

    use super::*;

    #[tokio::test]
    async fn a_request_that_lay_unread_while_all_was_held_up_is_answered() {
        let mut connections = Connections::new(1);
        let (client, mut server) = UnixStream::pair().unwrap();
        client.writable().await.unwrap();
        assert_eq!(client.try_write(b"?").unwrap(), 1);
        let is_read = Arc::new(AtomicBool::new(false));
        let has_read = Arc::clone(&is_read);
        let serve = async move |activity: Activity| {
            server.read_u8().await.unwrap();
            let _answering = activity.answering();
            has_read.store(true, Ordering::Relaxed);
        };
        connections.add(serve).await;
        // As a machine under load holds up every task at once.
        thread::sleep(2 * MOMENT);
        connections.add(async |_| ()).await;
        assert!(is_read.load(Ordering::Relaxed));
    }
}
