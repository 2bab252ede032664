//! Collector with invented figures: it takes a snapshot on request, no sooner than the real one
//! would, with a few counts between two.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant, SystemTime},
};

use model::{Access, Snapshot};
use tokio::sync::{mpsc, oneshot};
use web::Snapshots;

use crate::Crowd;

/// Pause after each reading: a multiple of its duration, with a minimum, as in the real one.
const REST: u32 = 3;
const REST_MIN: Duration = Duration::from_millis(50);

type Answer = oneshot::Sender<Arc<Snapshot>>;

/// Starts it on a separate thread. Snapshots share no data: each is as large as the first.
#[must_use]
pub fn start(crowd: Crowd) -> Snapshots {
    let (requests, asked) = mpsc::channel::<Answer>(64);
    let asked = Mutex::new(asked);
    thread::spawn(move || work(crowd, &mut asked.lock().unwrap_or_else(PoisonError::into_inner)));
    Snapshots::new(move || {
        let requests = requests.clone();
        async move {
            let (answer, snapshot) = oneshot::channel();
            requests.send(answer).await.ok()?;
            snapshot.await.ok()
        }
    })
}

fn work(crowd: Crowd, asked: &mut mpsc::Receiver<Answer>) {
    let mut latest = Arc::new(crowd.snapshot());
    let mut readings = 0;
    while let Some(first) = asked.blocking_recv() {
        let begun = Instant::now();
        let mut waiting = vec![first];
        while let Ok(another) = asked.try_recv() {
            waiting.push(another);
        }
        readings += 1;
        latest = Arc::new(next(&latest, readings));
        for answer in waiting {
            // The requester may have gone.
            let _ = answer.send(Arc::clone(&latest));
        }
        thread::sleep((begun.elapsed() * REST).max(REST_MIN));
    }
}

/// Next snapshot: each process has one more fault on each GPU, and a few processes became busier
/// than the others.
fn next(latest: &Snapshot, readings: usize) -> Snapshot {
    let mut next = latest.clone();
    next.taken = SystemTime::now();
    for (at, process) in next.processes.iter_mut().enumerate() {
        let faults = if (at + readings).is_multiple_of(100) { 1_000_000 } else { 1 };
        for counters in process.gpus.values_mut() {
            counters.fault_entries[Access::Read] += faults;
        }
    }
    next
}
